package e2e

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

// redisDo sends a command to the Redis of a cluster, as its Argo CD does.
func (s *clusterClient) redisDo(t testing.TB, args ...string) string {
	t.Helper()
	_, port, _ := strings.Cut(s.Redis.Address, ":")
	out, err := exec.Command("redis-cli", append([]string{"-p", port, "-a", s.Redis.Password, "--no-auth-warning"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// proxyClient returns a client of the resource proxy with a certificate for the cluster of an agent.
func (w *testEnv) proxyClient(t testing.TB, from *authority, agent string) (*http.Client, pair) {
	t.Helper()
	return w.clientWith(t, from, agent, (*authority).forProxy)
}

func (w *testEnv) clientWith(t testing.TB, from *authority, name string, issue func(*authority, testing.TB, string) pair) (*http.Client, pair) {
	t.Helper()
	issuer := *from
	issuer.folder, issuer.serial = t.TempDir(), from.serial+2000
	cert := issue(&issuer, t, name)
	config := issuer.client(t, &cert)
	config.RootCAs = w.pki.client(t, nil).RootCAs
	config.NextProtos = nil
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}, cert
}

func liveBadInput(t *testing.T, w *testEnv) {
	t.Helper()
	s := managedSubject(t, w, "attacked")
	url := "https://" + w.live.resources
	object := "/api/v1/namespaces/" + s.workload + "/configmaps/settings"
	good, _ := w.proxyClient(t, w.pki, "managed")
	get := func(client *http.Client, path string, header ...string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			if header[i] == "Host" {
				request.Host = header[i+1]
			}
			request.Header.Set(header[i], header[i+1])
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response.StatusCode, string(text), err
	}
	works := func(t *testing.T) {
		t.Helper()
		if code, text, err := get(good, object); code != http.StatusOK {
			t.Errorf("a valid request gets %d %s %v", code, text, err)
		}
	}
	works(t)

	t.Run("certificates", func(t *testing.T) {
		// The second has the name of the certificate that Argo CD uses for all clusters. It names no agent, even if an
		// agent has this name.
		for stranger, want := range map[string]struct {
			code int
			text string
		}{"unregistered": {http.StatusForbidden, "is registered"}, "argocd-server": {http.StatusUnauthorized, "names an agent"}} {
			client, _ := w.clientWith(t, w.pki, stranger, (*authority).forADay)
			if code, text, err := get(client, object); code != want.code || !strings.Contains(text, want.text) {
				t.Errorf("as %s: %d %s %v", stranger, code, text, err)
			}
			if code, text, err := get(client, object, "Authorization", "Bearer guessed"); code != http.StatusForbidden || !strings.Contains(text, "the token is not in a cluster Secret") {
				t.Errorf("as %s with an invalid token: %d %s %v", stranger, code, text, err)
			}
		}
		foreign, _ := w.proxyClient(t, newAuthority(t, t.TempDir(), "foreign"), "managed")
		if code, text, err := get(foreign, object); err == nil {
			t.Errorf("with a certificate of a foreign authority: %d %s", code, text)
		}
		if code, text, err := get(&http.Client{Transport: &http.Transport{TLSClientConfig: w.pki.client(t, nil)}}, object); err == nil {
			t.Errorf("without a certificate: %d %s", code, text)
		}
		own, _ := w.clientWith(t, w.pki, "managed", (*authority).forADay)
		if code, text, err := get(own, object); code != http.StatusForbidden || !strings.Contains(text, "that of agent managed itself") {
			t.Errorf("with the certificate of the agent: %d %s %v", code, text, err)
		}
		// The certificate for one cluster does not give access to another.
		other, _ := w.proxyClient(t, w.pki, "autonomous")
		if code, text, err := get(other, object); code == http.StatusOK {
			t.Errorf("as another agent: %d %s %v", code, text, err)
		}
		works(t)
	})
	t.Run("a revoked certificate", func(t *testing.T) {
		client, cert := w.proxyClient(t, w.pki, "managed")
		client.Timeout = 0
		watch, err := client.Get(url + "/api/v1/namespaces/" + s.workload + "/configmaps?watch=true&fieldSelector=metadata.name%3Dsettings") //nolint:bodyclose // it is, below
		if err != nil {
			t.Fatalf("watch: %v", err)
		}
		defer watch.Body.Close()
		if watch.StatusCode != http.StatusOK {
			t.Fatalf("watch: %s", watch.Status)
		}
		block, _ := pem.Decode(readFile(t, cert.cert))
		list := w.hub.configMap("argocd-agent-tls-blocklist")
		list.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{fmt.Sprintf("%X", sha256.Sum256(block.Bytes)): ""}})
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, watch.Body)
			ended <- err
		}()
		select {
		case <-ended:
		case <-time.After(*patience):
			t.Fatal("the watch goes on although its certificate is revoked")
		}
		if code, text, err := get(client, object); err == nil && code != http.StatusForbidden {
			t.Errorf("with a revoked certificate: %d %s", code, text)
		}
		works(t)
		list.discard(t)
	})
	t.Run("requests", func(t *testing.T) {
		for _, path := range []string{"/api/v1/namespaces/../namespaces/kube-system/secrets", "/api/v1/namespaces/x%2f..%2f..%2fsecrets/y", "/api/v1//secrets", "/%2e%2e/x"} {
			if code, text := rawRequest(t, w, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		for what, request := range map[string]string{
			"an absolute address": "GET http://kubernetes.default.svc/api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n",
			"two lengths":         "POST " + object + " HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
			"length and chunks":   "POST " + object + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n\r\nabcde",
			"no HTTP":             "EHLO x\r\n\r\n",
		} {
			if code, text := rawRequest(t, w, request); code == http.StatusOK || code >= 500 && code != http.StatusNotImplemented {
				t.Errorf("%s: %d %s", what, code, text)
			}
		}
		// Headers about user and address have no effect. The certificate decides.
		for _, header := range [][]string{{"X-Remote-User", "system:admin"}, {"Authorization", "Bearer x"}, {"Host", "elsewhere.example"}} {
			code, text, err := get(good, "/apis/authentication.k8s.io/v1", header...)
			if code != http.StatusOK {
				t.Errorf("%v: %d %s %v", header, code, text, err)
			}
			if code, text, err := get(good, "/api/v1/namespaces/kube-system/secrets", header...); code != http.StatusForbidden || !strings.Contains(text, "resource-proxy-level") {
				t.Errorf("%v, and what belongs to no Application: %d %s %v", header, code, text, err)
			}
		}
		// A request as another user is refused. It is not executed with the permissions of the agent.
		if code, text, err := get(good, object, "Impersonate-User", "system:admin"); code != http.StatusForbidden || !strings.Contains(text, "is not a ServiceAccount") {
			t.Errorf("%d %s %v", code, text, err)
		}
		works(t)
	})
	t.Run("silent connections", func(t *testing.T) {
		const many = 1000
		var conns []net.Conn
		for _, address := range []string{w.live.resources, w.live.redis} {
			for range many {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
		}
		works(t)
		s.tree(t)
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	t.Run("Redis", func(t *testing.T) { redisBadInput(t, w, s) })
}

// rawRequest sends bytes to the resource proxy as a valid client, and returns the status code or 0.
func rawRequest(t *testing.T, w *testEnv, request string) (int, string) {
	t.Helper()
	issuer := *w.pki
	issuer.folder, issuer.serial = t.TempDir(), w.pki.serial+3000
	cert := issuer.forProxy(t, "managed")
	config := issuer.client(t, &cert)
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", w.live.resources, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(*patience))
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, err.Error()
	}
	buffer := make([]byte, 4096)
	n, err := conn.Read(buffer)
	code := 0
	if _, scanErr := fmt.Sscanf(string(buffer[:n]), "HTTP/1.1 %d", &code); scanErr != nil {
		return 0, fmt.Sprint(string(buffer[:n]), err)
	}
	return code, string(buffer[:n])
}

func redisBadInput(t *testing.T, w *testEnv, s *subject) {
	t.Helper()
	talk := func(text string) string {
		conn, err := net.Dial("tcp", w.live.redis)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, text)
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		var answer bytes.Buffer
		_, _ = io.Copy(&answer, conn)
		return answer.String()
	}
	command := func(words ...string) string {
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, word := range words {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		return text
	}
	key := "app|resources-tree|" + s.hub.namespace + "_" + s.hub.name + "|1.8.3.gz"
	auth := command("AUTH", w.hub.Redis.Password)
	if answer := talk(command("GET", key)); !strings.Contains(answer, "NOAUTH") {
		t.Errorf("an agent's key without a password: %.80q", answer)
	}
	if answer := talk(auth + command("GET", key)); !strings.HasPrefix(answer, "+OK\r\n$") || strings.HasPrefix(answer, "+OK\r\n$-1") {
		t.Errorf("an agent's key: %.80q", answer)
	}
	if answer := talk(auth + command("SET", key, "x")); !strings.Contains(answer, "only GET is allowed") {
		t.Errorf("writing an agent's key: %.80q", answer)
	}
	for _, malformed := range []string{"*1\r\n$-5\r\nx\r\n", "*99999999999\r\n", "*2\r\n$3\r\nGET\r\n$999999999999\r\n", "\x00\xff\x00\r\n", "*1\r\n:1\r\n", "$3\r\nabc\r\n"} {
		if answer := talk(malformed + command("PING")); strings.Contains(answer, "PONG") {
			t.Errorf("%q is answered as if nothing was wrong: %.80q", malformed, answer)
		}
	}
	s.tree(t) // other clients are not affected

	// Other keys of the spoke's Redis are not served.
	relay := w.managed().spoke.redisKeys(t, "mfst|*")
	for key := range relay {
		if answer := talk(auth + command("GET", key)); !strings.HasPrefix(answer, "+OK\r\n$-1") && !strings.HasPrefix(answer, "+OK\r\n_") {
			t.Errorf("%s of the spoke can be read: %.80q", key, answer)
		}
	}
}

// livePolicy tests the limits of the spoke's settings for all clients.
func livePolicy(t *testing.T, w *testEnv) {
	t.Helper()
	s := managedSubject(t, w, "guarded")
	pod := s.pod(t)
	config := w.kubeconfig(t, "managed")
	unrelated := s.agent.spoke.object(configMapKind.resource(), s.workload, "unrelated")
	unrelated.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "b"}})
	refused := func(text string, args ...string) {
		t.Helper()
		out, err := w.hubCommand(t, config, append([]string{"-n", s.workload}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), text) {
			t.Errorf("kubectl %v: %v: %s", args, err, out)
		}
	}
	refused("it belongs to no known Application (the agent's setting resource-proxy-level decides)", "get", "configmap", "unrelated")
	refused("the agent's setting resource-proxy-level decides", "get", "pods")
	refused("the agent's setting resource-proxy-level decides", "-n", lab.ArgoCDNamespace, "get", "secret", "argocd-redis")

	before := w.managed().args
	t.Cleanup(func() {
		w.managed().args = before
		w.managed().restart(t)
		w.managed().connected(t)
	})
	w.managed().args = slices.Concat(before, []string{"--resource-proxy-logs=false", "--resource-proxy-exec=false", "--resource-proxy-create=false",
		"--resource-proxy-level", "namespaces", "--resource-proxy-namespaces", s.workload})
	w.managed().restart(t)
	w.managed().connected(t)
	refused("the agent's setting resource-proxy-logs decides", "logs", pod)
	refused("the agent's setting resource-proxy-exec decides", "exec", pod, "--", "sh")
	refused("the agent's setting resource-proxy-create decides", "create", "configmap", "new")
	refused("the agent's setting resource-proxy-namespaces decides", "-n", "kube-system", "get", "pods")
	if out := w.throughHub(t, config, "-n", s.workload, "get", "configmap", "unrelated", "-o", "name"); out != "configmap/unrelated" {
		t.Errorf("an open namespace: %s", out)
	}
	text, err := s.try(http.MethodGet, "/pods/"+pod+"/logs", s.query(podKind, s.workload, pod, "podName", pod, "container", "web"), nil)
	if !strings.Contains(fmt.Sprint(text, err), "resource-proxy-logs") {
		t.Errorf("logs in Argo CD: %s %v", text, err)
	}
	if term, err := s.openTerminal(t, pod, "sh"); err == nil { // Argo CD sends the request after the terminal was opened
		await(t, "the terminal to end", func() error {
			term.mu.Lock()
			defer term.mu.Unlock()
			if term.end == nil {
				return &shownError{term.said, nil}
			}
			return nil
		})
		if strings.Contains(term.said, "$") {
			t.Errorf("a terminal that is switched off shows %q", term.said)
		}
	}
}
