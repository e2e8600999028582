package redis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"testing"
	"time"
)

// FuzzPassing: whatever a client sends, in whatever pieces, it gets the same with the loop and without it.
func FuzzPassing(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n$", "*2\r\n$3\r\nget\r\n$34\r\n" + treeKey("shop_cart") + "\r\n",
		"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nQUIT\r\n", "*0\r\n*1\r\n$4\r\nPING\r\n\r\n", "*1\r\n$7\r\nMONITOR\r\n",
		"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n$-5\r\n",
	} {
		f.Add([]byte(seed), uint16(7))
	}
	hub := faultyRedis(f, func(args []string) string { // says what it was asked
		var out []byte
		for _, arg := range args {
			out = append(append(out, arg...), ' ')
		}
		return string(appendBulk(nil, out))
	})
	with, without := fuzzed(f, hub, 0), fuzzed(f, hub, math.MaxInt)
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		if bytes.Contains(bytes.ToLower(data), []byte("subscribe")) || len(data) > 1<<16 {
			t.Skip() // this Redis does not confirm
		}
		got, ended := answers(t, with, data, int(size)+1)
		want, alsoEnded := answers(t, without, data, int(size)+1)
		if ended && alsoEnded && !bytes.Equal(got, want) {
			t.Errorf("%q in pieces of %d: %q, without the loop %q", data, int(size)+1, got, want)
		}
	})
}

// everybody says that every Application is an agent's, which is away.
type everybody struct{}

func (everybody) Resolve(_, name string) (Target, bool) {
	return Target{Agent: "w1", Local: name}, true
}

func (everybody) Dial(context.Context, string) (net.Conn, error) {
	return nil, &NotConnectedError{Agent: "w1"}
}

func fuzzed(f *testing.F, hub Endpoint, settled int) (address string) {
	f.Helper()
	server := New(Config{Hub: hub, Agents: everybody{}, Tunnels: everybody{}})
	server.settled = settled
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
	return listener.Addr().String()
}

// answers are everything that a client gets that says hello, sends some bytes in pieces, and then no more. If it was cut
// while it still sent, some may be lost: then they have not ended.
func answers(t *testing.T, address string, data []byte, size int) (got []byte, ended bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	hello := make([]byte, len("$5\r\nPING \r\n"))
	for range 2 { // after that the loop reads
		if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, hello); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for piece := range pieces(data, func() int { return size }) {
			if _, err := conn.Write(piece); err != nil {
				return // it may be refused half way
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
