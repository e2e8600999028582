package redis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// FuzzClientConn checks that a client receives the same replies however its bytes are split.
func FuzzClientConn(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n$", "*2\r\n$3\r\nget\r\n$34\r\n" + treeKey("shop_cart") + "\r\n",
		"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nQUIT\r\n", "*0\r\n*1\r\n$4\r\nPING\r\n\r\n", "*1\r\n$7\r\nMONITOR\r\n",
		"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n$-5\r\n",
	} {
		f.Add([]byte(seed), uint16(7))
	}
	hub := faultyRedis(f, func(args []string) string { // replies with the request
		var out []byte
		for _, arg := range args {
			out = append(append(out, arg...), ' ')
		}
		return string(appendBulk(nil, out))
	})
	server := New(Config{Hub: hub, Agents: everybody{}, Dial: everybody{}.Dial})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()
	f.Cleanup(func() {
		cancel()
		<-ended
	})
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		if bytes.Contains(bytes.ToLower(data), []byte("subscribe")) || len(data) > 1<<16 {
			t.Skip() // this Redis does not confirm subscriptions
		}
		pieces, complete := answers(t, listener.Addr().String(), data, int(size)+1)
		whole, alsoComplete := answers(t, listener.Addr().String(), data, 1<<16)
		if complete && alsoComplete && !bytes.Equal(pieces, whole) {
			t.Errorf("%q in pieces of %d: %q, in one piece %q", data, int(size)+1, pieces, whole)
		}
	})
}

// everybody resolves every Application to an agent that is not connected.
type everybody struct{}

func (everybody) Resolve(_, name string) (Target, bool) {
	return Target{Agent: "w1", Local: name}, true
}

func (everybody) Dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("agent w1 is not connected")
}

// answers returns all bytes that a client receives that sends data in pieces and then ends its side. If the proxy closed
// the connection while the client was sending, bytes can be lost, and complete is false.
func answers(t *testing.T, address string, data []byte, size int) (got []byte, complete bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		for piece := range pieces(data, func() int { return size }) {
			if _, err := conn.Write(piece); err != nil {
				return // the proxy can refuse the rest
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err = io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q: the connection stays open after %q", data, got)
	}
	return got, err == nil
}
