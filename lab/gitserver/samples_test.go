package gitserver

import (
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

func TestSamples_AreServed(t *testing.T) {
	store, server := start(t, nil)
	must(t, store.CreateSamples(t.Context(), server.URL()))
	plain, err := store.Open(SamplePlain)
	must(t, err)
	changed, err := plain.Commit(t.Context(), "Mine", map[string]string{"x": ""})
	must(t, err)
	must(t, store.CreateSamples(t.Context(), server.URL())) // a second call keeps the repositories
	if got, _ := plain.Resolve(t.Context(), DefaultBranch); got != changed {
		t.Error("CreateSamples touched an existing repository")
	}
	for _, name := range Samples() {
		repo, err := store.Open(name)
		must(t, err)
		files, err := repo.Files(t.Context(), DefaultBranch)
		must(t, err)
		for _, file := range files {
			content, err := repo.File(t.Context(), DefaultBranch, file)
			must(t, err)
			if strings.Contains(content, baseMark) {
				t.Errorf("%s: %s still has %s", name, file, baseMark)
			}
		}
		if name != SamplePrivate {
			newClient(t).run("clone", server.RepoURL(name), "copy")
		}
	}
	if out, err := newClient(t).try("clone", server.RepoURL(SamplePrivate), "copy"); err == nil {
		t.Errorf("the private sample is public:\n%s", out)
	}
}

func TestSigner_SignaturesAreVerifiedByGit(t *testing.T) {
	ctx := t.Context()
	store, server := start(t, nil)
	repo := create(t, store, "signed", RepoOptions{Sample: SampleSigned})
	signer, err := store.Signer(ctx) // as another process would load it
	must(t, err)
	signed, err := repo.Commit(ctx, "Signed later", map[string]string{"x": "x"}, SignedBy(signer))
	must(t, err)
	unsigned, err := repo.Commit(ctx, "Not signed", map[string]string{"x": "y"})
	must(t, err)

	// As Argo CD does: a home directory with the trusted public keys.
	err = inGnupgHome(ctx, func(home string) error {
		if _, err := gpg(ctx, home, signer.PublicKey(), "--import"); err != nil {
			return err
		}
		c := newClient(t)
		c.env = []string{"GNUPGHOME=" + home}
		c.run("clone", server.RepoURL("signed"), "copy")
		for rev, good := range map[string]bool{
			signed: true, unsigned: false, signed + "^": true, "origin/unsigned": false, "origin/foreign": false,
		} {
			out, err := c.try("-C", "copy", "verify-commit", "--raw", rev)
			if (err == nil) != good {
				t.Errorf("verify %s: %v, want good: %v\n%s", rev, err, good, out)
			}
			if good && !strings.Contains(out, "GOODSIG "+signer.KeyID()) {
				t.Errorf("verify %s does not name the key %s:\n%s", rev, signer.KeyID(), out)
			}
			if rev == "origin/foreign" && !strings.Contains(out, "NO_PUBKEY") {
				t.Errorf("the foreign commit is not signed by an unknown key:\n%s", out)
			}
		}
		c.run("-C", "copy", "verify-tag", "v1.0.0")
		return nil
	})
	must(t, err)
}

func TestSigner_LeavesNoProcessOrDirectory(t *testing.T) {
	// A temporary directory with a path that is too long for a Unix socket.
	long := filepath.Join(t.TempDir(), strings.Repeat("long-", 20))
	must(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	var home string
	must(t, inGnupgHome(t.Context(), func(h string) error {
		home = h
		_, err := gpg(t.Context(), h, "", "--passphrase", "", "--quick-generate-key", "x@example.com", "ed25519", "sign", "never")
		return err
	}))
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("%s is left", home)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range processes {
		if line, _ := os.ReadFile(file); strings.Contains(string(line), home) {
			t.Errorf("a process is left: %q", line)
		}
	}
}

// selfSigned returns a certificate for 127.0.0.1 and a file that trusts it.
func selfSigned(t *testing.T) (*tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
