package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a self-signed certificate for a name and the loopback address.
func writePair(t *testing.T, name string) (pair clientCertificate, certificate *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pair = clientCertificate{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	for file, block := range map[string]*pem.Block{pair.cert: {Type: "CERTIFICATE", Bytes: der}, pair.key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return pair, certificate
}

// Redis and the repo-server can require a client certificate. It can be renewed without a restart.
func TestClientTLS_PresentsCurrentCertificate(t *testing.T) {
	server, _ := writePair(t, "server")
	first, _ := writePair(t, "first")
	second, _ := writePair(t, "second")
	pair, err := server.load(nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	names := make(chan string)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(names)
				return
			}
			c := conn.(*tls.Conn)
			if err := c.Handshake(); err != nil {
				names <- "refused"
			} else {
				names <- c.ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			_ = c.Close()
		}
	}()
	address := listener.Addr().String()
	dial := func(client clientCertificate) string {
		t.Helper()
		cfg, err := clientTLS("Redis", address, server.cert, false, client)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := tls.Dial("tcp", address, cfg); err == nil {
			defer conn.Close()
		}
		return <-names
	}
	if got := dial(clientCertificate{}); got != "refused" {
		t.Errorf("without a certificate: %s", got)
	}
	if got := dial(first); got != "first" {
		t.Errorf("the server sees %s", got)
	}
	cfg, err := clientTLS("Redis", address, server.cert, false, first)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{second.cert: first.cert, second.key: first.key} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := <-names; got != "second" {
		t.Errorf("after the renewal the server sees %s", got)
	}
	if _, err := clientTLS("Redis", address, "", false, clientCertificate{"missing", "missing"}); err == nil || !strings.Contains(err.Error(), "client certificate for Redis") {
		t.Errorf("a missing file: %v", err)
	}
}
