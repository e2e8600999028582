package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
)

func TestAuthority_IssuesTrustedCertificates(t *testing.T) {
	made, err := NewAuthority(t.TempDir(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadAuthority(made.CertFile(), made.KeyFile(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(made.CertFile())
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(pem)
	for name, authority := range map[string]*Authority{"made": made, "loaded": loaded} {
		server, err := authority.Server("api", "kubernetes.default")
		if err != nil {
			t.Fatal(err)
		}
		check(t, name, server, x509.VerifyOptions{Roots: trust, DNSName: "kubernetes.default"})
		check(t, name, server, x509.VerifyOptions{Roots: trust, DNSName: "127.0.0.1"})
		client, err := authority.Client("system:kube-scheduler", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		subject := check(t, name, client, x509.VerifyOptions{Roots: trust, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if subject.Subject.CommonName != "system:kube-scheduler" || subject.Subject.Organization[0] != "system:masters" {
			t.Errorf("%s: subject is %s", name, subject.Subject)
		}
	}
}

func check(t *testing.T, name string, pair Pair, options x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	loaded, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if _, err := loaded.Leaf.Verify(options); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return loaded.Leaf
}

func TestAuthority_KeyFilesArePrivate(t *testing.T) {
	authority, err := NewAuthority(t.TempDir(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(authority.KeyFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
}
