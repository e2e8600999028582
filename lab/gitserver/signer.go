package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Signer is a GPG key that signs commits and tags.
//
// The key is in memory. Each use has its own GNUPGHOME, which is deleted afterwards, together with the agent process
// that gpg starts there. Concurrent uses do not affect each other.
type Signer struct {
	fingerprint string
	public      string
	secret      string
}

// NewSigner generates a key for "name <email>", without passphrase or expiry.
func NewSigner(ctx context.Context, name, email string) (*Signer, error) {
	s := &Signer{}
	err := inGnupgHome(ctx, func(home string) error {
		uid := fmt.Sprintf("%s <%s>", name, email)
		if _, err := gpg(ctx, home, "", "--passphrase", "", "--quick-generate-key", uid, "ed25519", "sign", "never"); err != nil {
			return err
		}
		secret, err := gpg(ctx, home, "", "--armor", "--export-secret-keys")
		if err != nil {
			return err
		}
		return s.load(ctx, home, secret)
	})
	if err != nil {
		return nil, fmt.Errorf("generate a GPG key for %s: %w", email, err)
	}
	return s, nil
}

// Signer returns the key of the store. It is generated on first use. It signs the signed sample.
func (s *Store) Signer(ctx context.Context) (*Signer, error) {
	unlock, err := lockFile(filepath.Join(s.dir, "signing-key.lock"))
	if err != nil {
		return nil, fmt.Errorf("lock the store's GPG key: %w", err)
	}
	defer unlock()
	file := filepath.Join(s.dir, "signing-key.asc")
	secret, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		signer, err := NewSigner(ctx, authorName, authorEmail)
		if err != nil {
			return nil, err
		}
		if err := replaceFile(file, []byte(signer.secret)); err != nil {
			return nil, fmt.Errorf("keep the store's GPG key: %w", err)
		}
		return signer, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the store's GPG key: %w", err)
	}
	signer := &Signer{}
	err = inGnupgHome(ctx, func(home string) error {
		if _, err := gpg(ctx, home, string(secret), "--import"); err != nil {
			return err
		}
		return signer.load(ctx, home, string(secret))
	})
	if err != nil {
		return nil, fmt.Errorf("load the store's GPG key from %s: %w", file, err)
	}
	return signer, nil
}

// Fingerprint returns the fingerprint in upper-case hexadecimal digits.
func (s *Signer) Fingerprint() string { return s.fingerprint }

// KeyID returns the long key ID (16 digits), which signatureKeys of an AppProject and the keys of argocd-gpg-keys-cm
// contain.
func (s *Signer) KeyID() string { return s.fingerprint[len(s.fingerprint)-16:] }

// PublicKey returns the armored public key, a value for argocd-gpg-keys-cm.
func (s *Signer) PublicKey() string { return s.public }

// load reads the only key in home.
func (s *Signer) load(ctx context.Context, home, secret string) error {
	listing, err := gpg(ctx, home, "", "--with-colons", "--list-secret-keys")
	if err != nil {
		return err
	}
	for line := range strings.Lines(listing) {
		// The tenth field of the first "fpr" record is the fingerprint of the primary key.
		if fields := strings.Split(line, ":"); fields[0] == "fpr" && len(fields) > 9 && s.fingerprint == "" {
			s.fingerprint = fields[9]
		}
	}
	if len(s.fingerprint) < 16 {
		return fmt.Errorf("gpg lists no key: %q", listing)
	}
	s.secret = secret
	s.public, err = gpg(ctx, home, "", "--armor", "--export", s.fingerprint)
	return err
}

// use calls do with the environment in which git signs as s.
func (s *Signer) use(ctx context.Context, do func(env []string) error) error {
	program, err := lookProgram("gpg")
	if err != nil {
		return err
	}
	return inGnupgHome(ctx, func(home string) error {
		if _, err := gpg(ctx, home, s.secret, "--import"); err != nil {
			return fmt.Errorf("load the signing key: %w", err)
		}
		return do([]string{
			"GNUPGHOME=" + home, "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=gpg.program", "GIT_CONFIG_VALUE_0=" + program,
		})
	})
}

// maxHome is the maximum length of a home directory such that the path of gpg-agent's socket fits into a Unix socket
// address (108 bytes).
const maxHome = 80

// inGnupgHome calls do with a new GNUPGHOME, then stops its agent and deletes it.
func inGnupgHome(ctx context.Context, do func(home string) error) (err error) {
	home, err := os.MkdirTemp("", "gpg") // mode 0700, as gpg requires
	if err == nil && len(home) > maxHome {
		_ = os.Remove(home)
		home, err = os.MkdirTemp("/tmp", "gpg")
	}
	if err != nil {
		return fmt.Errorf("create a GNUPGHOME: %w", err)
	}
	defer func() {
		// Stop the agent even if the context of the caller has ended.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, stopAgent(stopCtx, home), os.RemoveAll(home))
	}()
	return do(home)
}

// stopAgent stops the gpg-agent of home, if there is one, and waits for its end. It is not our child, so it polls the
// process ID.
func stopAgent(ctx context.Context, home string) error {
	if _, err := lookProgram("gpg-connect-agent"); err != nil {
		return nil // no agent either
	}
	out, err := command{
		program: "gpg-connect-agent",
		args:    []string{"--homedir", home, "--no-autostart", "GETINFO pid", "KILLAGENT", "/bye"},
	}.run(ctx)
	if err != nil {
		return fmt.Errorf("stop gpg-agent: %w", err)
	}
	var pid int
	if _, err := fmt.Sscanf(out, "D %d", &pid); err != nil {
		return nil // no agent was running
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for running(pid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("gpg-agent (process %d) does not stop: %w", pid, ctx.Err())
		}
	}
	return nil
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	// The state follows the name, which is in parentheses.
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func gpg(ctx context.Context, home, stdin string, args ...string) (string, error) {
	base := []string{"--homedir", home, "--batch", "--yes", "--quiet", "--no-tty", "--pinentry-mode", "loopback"}
	return command{program: "gpg", args: append(base, args...), stdin: stdin}.run(ctx)
}
