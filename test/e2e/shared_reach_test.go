package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// redisTalk is a connection to an agent's Redis that can receive messages.
func redisTalk(t testing.TB, address string, requests ...string) *bufio.Reader {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(*patience))
	in := bufio.NewReader(conn)
	for _, request := range append([]string{`AUTH "` + sharedPassword + `"`}, requests...) {
		words := strings.SplitN(request, " ", 3)
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, word := range words {
			word = strings.Trim(word, `"`)
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		if words[0] == "AUTH" {
			text = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(sharedPassword), sharedPassword)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	if line, err := in.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("AUTH: %q, %v", line, err)
	}
	return in
}

// channelsAreIsolated subscribes to all channels on one spoke. It receives only its own messages.
func channelsAreIsolated(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	heard := redisTalk(t, endpoints["autonomous"].redis, "PSUBSCRIBE *")
	until := func(text string) string {
		var all strings.Builder
		for !strings.Contains(all.String(), text) {
			line, err := heard.ReadString('\n')
			if err != nil {
				t.Fatalf("%v after %q", err, all.String())
			}
			all.WriteString(line)
		}
		return all.String()
	}
	until(":1\r\n") // subscribed
	for _, channel := range []string{"secret", tenantPrefix(t, w, "autonomous") + "forged"} {
		if line, err := redisTalk(t, endpoints["managed"].redis, "PUBLISH "+channel+" of-the-victim").ReadString('\n'); err != nil || line != ":0\r\n" {
			t.Fatalf("PUBLISH: %q, %v", line, err) // no other subscriber
		}
	}
	if line, err := redisTalk(t, endpoints["autonomous"].redis, "PUBLISH own of-its-own").ReadString('\n'); err != nil || line != ":1\r\n" {
		t.Fatalf("PUBLISH: %q, %v", line, err)
	}
	if all := until("of-its-own\r\n"); strings.Contains(all, "of-the-victim") {
		t.Errorf("it hears %q", all)
	}
}

// privateRepository deploys from a repository with credentials of a Secret of the hub.
func privateRepository(t *testing.T, w *testEnv) {
	t.Helper()
	w.hub.project("private").create(t, projectOf("managed"))
	w.hub.secret("private-repo").create(t, secretOf("repository", map[string]string{
		"project": "private", "type": "git", "url": w.RepoURL("private"), "username": w.Git.Username, "password": w.Git.Password, "insecure": "true"}))
	spec := w.plain("managed", fresh("private"))
	spec.repo, spec.project = w.RepoURL("private"), "private"
	app := w.hub.app("managed", spec.namespace)
	app.create(t, spec.object())
	app.becomes(t, synced, healthyApp)
}

// refusalsReachTheApplication tests Applications of repositories that are not permitted for their agents.
func refusalsReachTheApplication(t *testing.T, w *testEnv) {
	t.Helper()
	// It exists with credentials for another AppProject.
	spec := w.plain("managed", fresh("foreign"))
	spec.repo = w.RepoURL("hooks")
	spec.path = "waves"
	w.hub.secret("foreign-repo").create(t, secretOf("repository", map[string]string{
		"project": "of-others", "type": "git", "url": spec.repo, "username": "x", "password": "y"}))
	app := w.hub.app("managed", spec.namespace)
	app.create(t, spec.object())
	app.becomes(t, shows("ComparisonError", "repository "+spec.repo+" is registered on the hub for a project that is not placed on agent managed"))
	w.hub.secret("foreign-repo").discard(t)
	w.argocd(t, "app", "get", app.namespace+"/"+app.name, "--hard-refresh")
	app.becomes(t, showsNo("ComparisonError"))

	// The AppProject of an autonomous agent permits everything. Those of the hub do not.
	w.hub.project("default").patch(t, `{"spec":{"sourceRepos":["!`+w.RepoURL("hooks")+`","*"]}}`)
	t.Cleanup(func() { w.hub.project("default").patch(t, `{"spec":{"sourceRepos":["*"]}}`) })
	spoke := w.autonomous().spoke
	own := w.plain("in-cluster", fresh("own-word"))
	own.repo, own.path = w.RepoURL("hooks"), "waves"
	ownApp := spoke.app(lab.ArgoCDNamespace, own.namespace)
	ownApp.create(t, own.object())
	refused := shows("ComparisonError", "repository "+own.repo+" is not of a project that is placed on agent autonomous: no AppProject of the hub")
	ownApp.becomes(t, refused)
	w.hub.app("autonomous", own.namespace).becomes(t, refused)
}

// withValueFile returns an Application of a chart with a value file from a URL.
func withValueFile(spec appSpec, address string) map[string]any {
	u := unstructured.Unstructured{Object: spec.object()}
	set(&u, "spec.source.helm", map[string]any{"valueFiles": []any{"values.yaml", address}})
	return u.Object
}

// fetchesOtherURLs tries to let the hub's repo-server fetch URLs that are not repositories.
func fetchesOtherURLs(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(out, "greeting: from an address\n")
	}))
	t.Cleanup(server.Close)
	address := server.URL + "/values.yaml"

	// A URL that only the spoke sends is refused, in every form.
	spec := w.plain("in-cluster", fresh("reaching"))
	spec.repo = w.RepoURL("helm")
	spokeApp := w.autonomous().spoke.app(lab.ArgoCDNamespace, spec.namespace)
	spokeApp.create(t, withValueFile(spec, address))
	refused := shows("ComparisonError", "must be in the hub's own Application")
	spokeApp.becomes(t, refused)
	w.hub.app("autonomous", spec.namespace).becomes(t, refused)
	repository, source := bytesField(1, textField(1, w.RepoURL("helm"))), textField(1, w.RepoURL("helm"))
	for what, hostile := range map[string][]byte{
		"value file":     bytesField(7, textField(1, address)),
		"file parameter": bytesField(7, bytesField(5, textField(1, "greeting"), textField(2, address))),
		"component":      bytesField(8, textField(13, address)),
		"patch":          bytesField(8, bytesField(12, textField(1, address))),
		"local file":     bytesField(7, textField(1, "values.yaml,"+w.pki.file)),
		"plugin":         bytesField(11, textField(1, "any")),
	} {
		_, err := answerOfRepoServer(t, endpoints["autonomous"].repoServer, "GenerateManifest",
			repository, textField(2, "main"), textField(4, "app"), textField(5, "any"), bytesField(10, source, textField(2, "."), hostile))
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "must be in the hub's own Application") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Fatalf("the repo-server has fetched it %d times", n)
	}

	// A URL in the hub's Application is fetched.
	spec = w.plain("managed", fresh("reaching"))
	spec.repo = w.RepoURL("helm")
	app := w.hub.app("managed", spec.namespace)
	app.create(t, withValueFile(spec, address))
	app.becomes(t, synced, healthyApp)
	w.managed().spoke.object(configMaps, spec.namespace, spec.namespace+"-guestbook").is(t, field("data.GREETING", "from an address"))
	if asked.Load() == 0 {
		t.Error("the values were not requested")
	}
}

// linksAreNotFollowed requests files of a repository with a symbolic link to a file of the repo-server's machine.
func linksAreNotFollowed(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	store, err := w.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	name := fresh("links")
	if _, err := store.Create(t.Context(), name, gitserver.RepoOptions{Sample: gitserver.SamplePlain}); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"password": "geheim"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	address, folder := w.RepoURL(name), t.TempDir()
	pushed := strings.Replace(address, "://", "://"+w.Git.Username+":"+w.Git.Password+"@", 1)
	for _, command := range [][]string{
		{"git", "-c", "http.sslVerify=false", "clone", "-q", address, folder},
		{"ln", "-s", secret, filepath.Join(folder, "config.json")},
		{"git", "-C", folder, "add", "config.json"},
		{"git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "a link"},
		{"git", "-C", folder, "-c", "http.sslVerify=false", "push", "-q", pushed, "HEAD:main"},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	for what, safely := range map[string][]byte{"by default": nil, "where Argo CD does not follow them": protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 1)} {
		answer, err := answerOfRepoServer(t, endpoints["autonomous"].repoServer, "GetGitFiles", bytesField(1, textField(1, address)), textField(3, "main"), textField(4, "*.json"), safely)
		if strings.Contains(answer, "geheim") {
			t.Errorf("%s: the repo-server's file comes to the spoke", what)
		}
		if err == nil || !strings.Contains(err.Error(), "symlink") {
			t.Errorf("%s: %q, %v", what, answer, err)
		}
	}
	if answer, err := answerOfRepoServer(t, endpoints["autonomous"].repoServer, "GetGitFiles", bytesField(1, textField(1, w.RepoURL("appset"))), textField(3, "main"), textField(4, "config/*.yaml")); err != nil || !strings.Contains(answer, "config/staging.yaml") {
		t.Errorf("a repository without links: %q, %v", answer, err)
	}
}

// anotherRepoServer lets the principal expect a certificate that the hub's repo-server does not have. The spoke's
// controllers must report it.
func anotherRepoServer(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	before := w.principal.args
	foreign := newAuthority(t, t.TempDir(), "foreign")
	w.principal.args = append(without(before, "--shared-repo-server-ca-path"), "--shared-repo-server-ca-path", foreign.file)
	t.Cleanup(func() {
		w.principal.args = before
		w.principal.restart(t)
		w.connected(t)
	})
	w.principal.restart(t)
	w.connected(t)
	await(t, "a request to be refused because of the certificate", func() error {
		_, err := answerOfRepoServer(t, endpoints["autonomous"].repoServer, "GetGitDirectories", bytesField(1, textField(1, w.RepoURL("plain"))))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	// The controllers verify the certificate of the agent.
	conn, err := tls.Dial("tcp", endpoints["managed"].repoServer, w.pki.client(t, nil))
	if err != nil {
		t.Fatalf("the agent does not show its certificate: %v", err)
	}
	_ = conn.Close()
}
