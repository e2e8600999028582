package identity

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStore_KeepsValidMaterial(t *testing.T) {
	ca, other := newAuthority(t, "old"), newAuthority(t, "new")
	first, second := ca.issue(template("first")), other.issue(template("second"))
	expired := template("expired")
	expired.NotAfter = time.Now().Add(-time.Hour)
	late := ca.issue(expired)

	s := NewStore("Secret argocd-agent-principal-tls")
	if _, err := s.Material(); err == nil || !strings.Contains(err.Error(), "Secret argocd-agent-principal-tls: no certificate yet") {
		t.Fatalf("error %v", err)
	}
	if err := s.Update(late.cert, late.key, late.ca); err == nil || !strings.Contains(err.Error(), `"CN=expired" expired on`) {
		t.Fatalf("error %v", err)
	}
	must(t, s.Update(first.cert, first.key, first.ca))
	expect := func(name string) {
		t.Helper()
		m, err := s.Material()
		must(t, err)
		if got := m.Certificate.Leaf.Subject.CommonName; got != name {
			t.Fatalf("%s is in use instead of %s", got, name)
		}
	}
	expect("first")
	for title, broken := range map[string]struct {
		pems
		problem string
	}{
		"key of another": {pems{second.cert, first.key, nil}, "private key does not match"},
		"no PEM":         {pems{[]byte("x"), first.key, nil}, "failed to find any PEM data"},
		"no CA":          {pems{second.cert, second.key, []byte("x")}, "no certificate in PEM form"},
		"empty CA":       {pems{second.cert, second.key, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, "parse CA bundle: certificate 1"},
		"expired":        {late, "expired on"},
	} {
		err := s.Update(broken.cert, broken.key, broken.ca)
		if err == nil || !strings.Contains(err.Error(), broken.problem) || !strings.Contains(err.Error(), "stays in use") {
			t.Errorf("%s: error %v instead of one with %q", title, err, broken.problem)
		}
		expect("first")
	}
	if s.Err() == nil {
		t.Error("Err does not report the unused update")
	}
	must(t, s.Update(second.cert, second.key, nil)) // the CA stays
	expect("second")
	must(t, s.Update(nil, nil, append(bytes.Clone(first.ca), second.ca...)))
	m, err := s.Material()
	must(t, err)
	if len(m.CAs) != 2 || s.Err() != nil || m.NotAfter().IsZero() {
		t.Errorf("%d CAs, %v", len(m.CAs), s.Err())
	}
}

func TestFiles_AreReadAgainAfterAChange(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	clock := time.Now()
	stamp := clock
	write := func(p pems) {
		t.Helper()
		stamp = stamp.Add(time.Minute)
		for name, content := range map[string][]byte{"tls.crt": p.cert, "tls.key": p.key, "ca.crt": p.ca} {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, content, 0o600))
			must(t, os.Chtimes(path, stamp, stamp))
		}
	}
	var log bytes.Buffer
	paths := [3]string{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
	open := func() (*Files, error) {
		return newFiles(paths, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return clock })
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Fatalf("error %v", err)
	}
	first, second, third := ca.issue(template("first")), ca.issue(template("second")), ca.issue(template("third"))
	write(first)
	f, err := open()
	must(t, err)
	expect := func(name string) {
		t.Helper()
		m, err := f.Material()
		must(t, err)
		if got := m.Certificate.Leaf.Subject.CommonName; got != name {
			t.Fatalf("%s is in use instead of %s", got, name)
		}
	}
	write(second)
	expect("first") // looked a moment ago
	clock = clock.Add(checkInterval)
	expect("second")

	write(pems{third.cert, second.key, third.ca}) // half way through a renewal
	for range 3 {
		clock = clock.Add(checkInterval)
		expect("second")
	}
	if n := strings.Count(log.String(), "Failed to use certificate files"); n != 1 || f.Err() == nil {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	must(t, os.Remove(paths[1]))
	clock = clock.Add(checkInterval)
	expect("second")
	write(third)
	clock = clock.Add(checkInterval)
	expect("third")
	if f.Err() != nil {
		t.Errorf("error %v stays", f.Err())
	}
	if n := strings.Count(log.String(), "Reloaded certificate files"); n != 2 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
