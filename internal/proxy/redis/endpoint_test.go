package redis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFromDirectory_ReadsFilesForEachConnection(t *testing.T) {
	redis := startRedis(t, "first")
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	endpoint := Endpoint{Address: redis.address(), Credentials: FromDirectory(dir)}
	if _, err := endpoint.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "read Redis password") {
		t.Errorf("without a file: %v", err)
	}
	connects := func() {
		t.Helper()
		conn, err := endpoint.connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	write("auth", "first\n")
	connects()
	redis.do("ACL", "SETUSER", "agent", "on", ">second", "~*", "+@all")
	write("auth", "second")
	if _, err := endpoint.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with the wrong password: %v", err)
	}
	write("auth_username", "agent")
	connects()
}

func TestEndpoint_TLS(t *testing.T) {
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	port := freePort(t)
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	redis := startRedis(t, hubPassword, "--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file", certificate,
		"--tls-cert-file", certificate, "--tls-key-file", key)
	address := "127.0.0.1:" + port
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	withCertificate := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	w := newWorld(t, func(c *Config) {
		c.Hub = Endpoint{Address: address, TLS: fixedTLS(withCertificate)}
	})
	w.agents["w1"].relay.Redis = Endpoint{Address: address, TLS: fixedTLS(withCertificate), Credentials: Fixed("", hubPassword)}
	redis.do("SET", treeKey("cart"), "tree")
	c := w.user()
	c.expect("+OK", "SET", "k", strings.Repeat("x", 1<<20))
	c.expect(":1048576", "STRLEN", "k")
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	c.expect("$4 tree", "GET", treeKey("cart")) // a key of the hub, which is the same Redis here

	stranger := Endpoint{Address: address, TLS: fixedTLS(&tls.Config{MinVersion: tls.VersionTLS12})}
	if _, err := stranger.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "with TLS") {
		t.Errorf("an unknown certificate: %v", err)
	}
	anonymous := Endpoint{Address: address, TLS: fixedTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), Credentials: Fixed("", hubPassword)}
	if _, err := anonymous.connect(t.Context()); err == nil {
		t.Error("Redis accepts a client without a certificate")
	}
}

// writeCertificate creates a certificate for the loopback address, and returns a pool that trusts it.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	return pool
}

func fixedTLS(cfg *tls.Config) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return cfg, nil }
}
