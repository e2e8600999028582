package sharedmode

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// echo is a hub at which whatever comes goes back.
func echo(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	return dialer.DialContext(ctx, "tcp", l.Addr().String())
}

func runForwarder(t *testing.T, d *Forwarder) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if d.TLS, err = SelfSignedConfig("agent"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestForwarder_WithAndWithoutTLS(t *testing.T) {
	address := runForwarder(t, &Forwarder{Open: echo, MaxConns: 64, Log: slog.New(slog.DiscardHandler)})
	plain, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{plain, secure} {
		text := strings.Repeat("PRI * HTTP/2.0 ", 10_000)
		go func() {
			_, _ = io.WriteString(conn, text)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if got, err := io.ReadAll(conn); string(got) != text {
			t.Errorf("%d bytes came back: %v", len(got), err)
		}
		_ = conn.Close()
	}
}

func TestForwarder_IsBoundedAndReportsFailures(t *testing.T) {
	var away atomic.Bool
	address := runForwarder(t, &Forwarder{
		MaxConns: 2, Log: slog.New(slog.DiscardHandler),
		Open: func(ctx context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("the hub is unreachable")
			}
			return echo(ctx)
		},
		WriteError: func(conn net.Conn, why error) { _, _ = io.WriteString(conn, why.Error()) },
	})
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	use := func(conn net.Conn) bool {
		_, _ = io.WriteString(conn, "x")
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err == nil
	}
	first, second := dial(), dial()
	if !use(first) || !use(second) {
		t.Fatal("they are of no use")
	}
	if use(dial()) {
		t.Error("a third connection")
	}
	_ = first.Close()
	await(t, "there is room again", func() bool { return use(dial()) })
	_ = second.Close()
	away.Store(true)
	await(t, "it says why", func() bool {
		conn := dial()
		_, _ = io.WriteString(conn, "x")
		got, _ := io.ReadAll(conn)
		return string(got) == "the hub is unreachable"
	})
}
