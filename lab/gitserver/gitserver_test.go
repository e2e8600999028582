package gitserver

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// start serves a new store with the users alice and bob.
func start(t *testing.T, cert *tls.Certificate) (*Store, *Server) {
	t.Helper()
	store, err := OpenStore(filepath.Join(t.TempDir(), "git"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, store.SetUser("alice", "wonder:land"))
	must(t, store.SetUser("bob", "builder"))
	server, err := Serve(store, ServerOptions{Certificate: cert, ErrorLog: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, server.Close()) })
	return store, server
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, store *Store, name string, opts RepoOptions) *Repo {
	t.Helper()
	repo, err := store.Create(t.Context(), name, opts)
	must(t, err)
	return repo
}

// client is git of a user, with its own home directory.
type client struct {
	t    *testing.T
	home string
	env  []string
}

func newClient(t *testing.T) client {
	t.Helper()
	return client{t: t, home: t.TempDir()}
}

func (c client) try(args ...string) (string, error) {
	c.t.Helper()
	path, err := lookProgram("git")
	must(c.t, err)
	cmd := exec.CommandContext(c.t.Context(), path, args...)
	cmd.Dir = c.home
	cmd.Env = append(gitEnv("HOME="+c.home, "GIT_AUTHOR_NAME=U", "GIT_AUTHOR_EMAIL=u@example.com",
		"GIT_COMMITTER_NAME=U", "GIT_COMMITTER_EMAIL=u@example.com"), c.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c client) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (c client) file(elem ...string) string {
	return filepath.Join(append([]string{c.home}, elem...)...)
}

func as(t *testing.T, rawURL, user, password string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	must(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

func TestServer_PublicRepositoryNeedsNoCredentials(t *testing.T) {
	store, server := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{Sample: SamplePlain})
	head, err := repo.Resolve(t.Context(), DefaultBranch)
	must(t, err)
	for _, protocol := range []string{"0", "1", "2"} {
		c := newClient(t)
		c.run("-c", "protocol.version="+protocol, "clone", server.RepoURL("demo"), "copy")
		if got := c.run("-C", "copy", "rev-parse", "HEAD"); got != head {
			t.Errorf("protocol %s: cloned %s, want %s", protocol, got, head)
		}
		if _, err := os.Stat(c.file("copy", "deployment.yaml")); err != nil {
			t.Error(err)
		}
	}
}

func TestServer_PrivateRepositoryNeedsCredentials(t *testing.T) {
	store, server := start(t, nil)
	create(t, store, "closed", RepoOptions{Sample: SamplePlain, Private: true})
	create(t, store, "alices", RepoOptions{Sample: SamplePlain, Private: true, Users: []string{"alice"}})
	cases := []struct{ name, repo, user, password, want string }{
		{"right", "closed", "alice", "wonder:land", ""},
		{"another user", "closed", "bob", "builder", ""},
		{"none", "closed", "", "", "could not read Username"},
		{"wrong password", "closed", "alice", "builder", "Authentication failed"},
		{"unknown user", "closed", "carol", "builder", "Authentication failed"},
		{"the one user", "alices", "alice", "wonder:land", ""},
		{"not the one user", "alices", "bob", "builder", "403"},
		{"no such repository", "absent", "alice", "wonder:land", "not found"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			from := server.RepoURL(tc.repo)
			if tc.user != "" {
				from = as(t, from, tc.user, tc.password)
			}
			out, err := newClient(t).try("clone", from, "copy")
			if tc.want == "" && err != nil {
				t.Errorf("clone failed: %v\n%s", err, out)
			}
			if tc.want != "" && (err == nil || !strings.Contains(out, tc.want)) {
				t.Errorf("clone: %v, want an error with %q in\n%s", err, tc.want, out)
			}
		})
	}
}

func TestServer_RejectsWrongCredentialsForPublicRepository(t *testing.T) {
	store, server := start(t, nil)
	create(t, store, "open", RepoOptions{})
	// git waits for the challenge. Argo CD's client does not.
	for password, want := range map[string]int{"no": http.StatusUnauthorized, "wonder:land": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.RepoURL("open")+"/info/refs?service=git-upload-pack", nil)
		must(t, err)
		req.SetBasicAuth("alice", password)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want {
			t.Errorf("password %q: %s, want %d", password, resp.Status, want)
		}
	}
}

func TestServer_AppliesChangedUsersAndAccess(t *testing.T) {
	store, server := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{Sample: SamplePlain})
	c := newClient(t)
	c.run("ls-remote", server.RepoURL("demo"))
	// Another process would use its own store for the same directory.
	other, err := OpenStore(store.Dir())
	must(t, err)
	must(t, repo.SetAccess(RepoOptions{Private: true}))
	if out, err := c.try("ls-remote", server.RepoURL("demo")); err == nil {
		t.Errorf("the repository is still public:\n%s", out)
	}
	must(t, other.SetUser("alice", "new"))
	c.run("ls-remote", as(t, server.RepoURL("demo"), "alice", "new"))
	must(t, other.RemoveUser("alice"))
	if out, err := c.try("ls-remote", as(t, server.RepoURL("demo"), "alice", "new")); err == nil {
		t.Errorf("the removed user still reads:\n%s", out)
	}
}

func TestServer_PushNeedsCredentials(t *testing.T) {
	store, server := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{Sample: SamplePlain})
	c := newClient(t)
	c.run("clone", server.RepoURL("demo"), "copy")
	// Larger than the buffer of git, so that the request is chunked, and incompressible.
	noise := make([]byte, 3<<20)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		noise[i] = byte(x)
	}
	must(t, os.WriteFile(c.file("copy", "noise.bin"), noise, 0o600))
	c.run("-C", "copy", "add", ".")
	c.run("-C", "copy", "commit", "-m", "Add noise")
	if out, err := c.try("-C", "copy", "push", "origin", "HEAD:main"); err == nil {
		t.Fatalf("a push without credentials went through:\n%s", out)
	}
	c.run("-C", "copy", "push", as(t, server.RepoURL("demo"), "bob", "builder"), "HEAD:main", "HEAD:refs/tags/big")
	got, err := repo.File(t.Context(), "big", "noise.bin")
	must(t, err)
	if got != string(noise) {
		t.Error("the pushed file differs")
	}
	// A commit follows the pushed commit, and the clone can pull it.
	sha, err := repo.Commit(t.Context(), "After the push", map[string]string{"more.txt": "more\n"})
	must(t, err)
	c.run("-C", "copy", "pull", "--ff-only", "origin", "main")
	if got := c.run("-C", "copy", "rev-parse", "HEAD"); got != sha {
		t.Errorf("pulled %s, want %s", got, sha)
	}
}

func TestServer_ServesHTTPS(t *testing.T) {
	cert, caFile := selfSigned(t)
	store, server := start(t, cert)
	create(t, store, "demo", RepoOptions{Sample: SamplePlain, Private: true})
	from := as(t, server.RepoURL("demo"), "alice", "wonder:land")
	if !strings.HasPrefix(from, "https://") {
		t.Fatal(from)
	}
	c := newClient(t)
	if out, err := c.try("clone", from, "untrusted"); err == nil {
		t.Errorf("git trusts an unknown certificate:\n%s", out)
	}
	c.run("-c", "http.sslCAInfo="+caFile, "clone", from, "copy")
}

func TestServer_CloseEndsRunningRequests(t *testing.T) {
	store, server := start(t, nil)
	create(t, store, "demo", RepoOptions{Sample: SamplePlain})
	must(t, server.Close())
	if out, err := newClient(t).try("ls-remote", server.RepoURL("demo")); err == nil {
		t.Errorf("a closed server answers:\n%s", out)
	}
	must(t, server.Close())
}
