package redis

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withTLS returns the configurations of a server and of its clients.
func withTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
		&tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func rawDial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func TestServerTLS_SilentAndPlaintextClientsAreDisconnected(t *testing.T) {
	server, client := withTLS(t)
	w := newWorld(t, func(c *Config) { c.TLS, c.FirstRequest = server, 100*time.Millisecond }).withTrees()
	silent := rawDial(t, w.address)
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("a client without a handshake: %v", err)
	}
	plain := rawDial(t, w.address)
	if _, err := plain.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	reply, _ := io.ReadAll(plain)
	if strings.Contains(string(reply), "PONG") || strings.Contains(string(reply), "NOAUTH") {
		t.Errorf("a client without TLS is served: %q", reply)
	}
	good := tls.Client(rawDial(t, w.address), client)
	if _, err := good.Write([]byte("*2\r\n$4\r\nAUTH\r\n$" + "8\r\n" + "12345678\r\n")); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 10)
	if _, err := io.ReadFull(good, head); err != nil || string(head) != "-WRONGPASS" {
		t.Errorf("%q, %v", head, err)
	}
	eventually(t, "all clients are gone", func() bool { _ = good.Close(); return w.server.Stats().Clients == 0 })
}

// A client above the limit must not keep the server from accepting others while it does not do its handshake.
func TestServerTLS_RefusedClientDoesNotBlockOthers(t *testing.T) {
	server, _ := withTLS(t)
	w := newWorld(t, func(c *Config) { c.TLS, c.MaxClients, c.FirstRequest = server, 1, time.Minute })
	first := rawDial(t, w.address)
	eventually(t, "the first client is known", func() bool { return w.server.Stats().Clients == 1 })
	for range 3 {
		refused := rawDial(t, w.address)
		if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Errorf("a client above the limit: %v", err)
		}
	}
	if got := w.server.Stats().Refused; got != 3 {
		t.Errorf("%d refused", got)
	}
	_ = first.Close()
	eventually(t, "the first client is gone", func() bool { return w.server.Stats().Clients == 0 })
}

func isReset(err error) bool { return strings.Contains(err.Error(), "connection reset") }
