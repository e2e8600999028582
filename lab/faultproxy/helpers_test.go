package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the timeout of conditions that normally take no time.
const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// echo is a server that returns its input.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return listener.Addr().String()
}

func newLink(t *testing.T, target string) *Link {
	t.Helper()
	link, err := New(target)
	must(t, err)
	t.Cleanup(func() { must(t, link.Close()) })
	return link
}

func dial(t *testing.T, link *Link) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", link.Addr(), patience)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("dialled a %T", conn)
	}
	return tcp
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	must(t, err)
}

func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

// silence checks that no data arrives for a moment. On a slow machine it can miss a fault, but it never reports a wrong
// one.
func silence(t *testing.T, conn net.Conn) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	if n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("read %d bytes, %v, want silence", n, err)
	}
	must(t, conn.SetReadDeadline(time.Now().Add(patience)))
}

func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
