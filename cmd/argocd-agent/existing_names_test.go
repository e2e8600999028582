package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// existingName is a row of testdata/existing-names.txt.
type existingName struct{ component, flag, variable, value string }

func existingNames(t *testing.T) (names []existingName) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "existing-names.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if words := append(strings.Fields(line), ""); words[0] != "#" {
			names = append(names, existingName{words[0], words[1], words[2], words[3]})
		}
	}
	return names
}

func TestExistingNames_FlagsAreAccepted(t *testing.T) {
	p := &program{}
	for _, command := range []*cobra.Command{p.principalCommand(), p.agentCommand()} {
		count := 0
		for _, name := range existingNames(t) {
			if name.component != command.Name() {
				continue
			}
			count++
			if command.Flags().Lookup(name.flag) == nil {
				t.Errorf("%s has no --%s", command.Name(), name.flag)
			}
		}
		if count < 50 {
			t.Errorf("%s: only %d names", command.Name(), count)
		}
	}
}

// Both programs start with the ConfigMap of an existing installation. Only the password file of agents is refused.
func TestExistingNames_ConfigMapsAreAccepted(t *testing.T) {
	for _, component := range []string{"principal", "agent"} {
		var env []string
		for _, name := range existingNames(t) {
			if name.component != component || name.variable == "-" {
				continue
			}
			switch {
			case name.flag == "log-format":
				name.value = "json"
			case strings.HasSuffix(name.flag, "-port") && name.value != "" && name.value != "0" && name.flag != "server-port":
				name.value = freePort(t)
			case name.flag == "creds":
				name.value = "mtls:"
			}
			env = append(env, name.variable+"="+name.value)
		}
		got := start(t, env, component, "--kubeconfig", kubeconfig(t))
		if got.principal == nil && got.agent == nil {
			t.Fatalf("%s: %s", component, got.stderr)
		}
		for setting, reason := range loggedWarnings(t, got.stderr) {
			if !strings.Contains(reason, "no effect") {
				t.Errorf("%s: %s: %s", component, setting, reason)
			}
		}
		if component == "principal" && (got.principal.KeepaliveMinInterval != defaultKeepaliveMinInterval || got.principal.Live.RedisTLS != nil) {
			t.Errorf("keepalive %s, TLS of the Redis proxy %v", got.principal.KeepaliveMinInterval, got.principal.Live.RedisTLS)
		}
	}
}

// Every variable of an existing installation sets something or is answered with a warning that gives the reason.
func TestExistingNames_VariablesAreKnown(t *testing.T) {
	for _, component := range []string{"principal", "agent"} {
		f := declared(map[string]string{"principal": principalPrefix, "agent": agentPrefix}[component])
		f.acceptExisting()
		var env []string
		for _, name := range existingNames(t) {
			if name.component == component && name.variable != "-" {
				env = append(env, name.variable+"=?")
			}
		}
		f.readEnvironment(env)
		for _, w := range f.warnings {
			if strings.Contains(w.reason, "unknown") {
				t.Errorf("%s: %s: %s", component, w.setting, w.reason)
			}
		}
	}
}

func loggedWarnings(t *testing.T, stderr string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(stderr) {
		var entry struct{ Level, Setting, Reason string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry.Level == "WARN" && entry.Setting != "" {
			all[entry.Setting] = entry.Reason
		}
	}
	return all
}

func startPrincipal(t *testing.T, env []string, args ...string) started {
	t.Helper()
	got := start(t, append(env, "ARGOCD_PRINCIPAL_LOG_FORMAT=json"), append([]string{"principal", "--kubeconfig", kubeconfig(t), "--listen-port", freePort(t),
		"--resource-proxy-port", freePort(t), "--metrics-port", "0", "--healthz-port", "0"}, args...)...)
	if got.principal == nil {
		t.Fatal(got.stderr)
	}
	return got
}

func TestSeveralHubs_AreWarnedOnce(t *testing.T) {
	got := startPrincipal(t, []string{"ARGOCD_PRINCIPAL_HA_PEER_ADDRESS=other:8404"}, "--disable-redis-proxy", "--ha-enabled", "--ha-preferred-role", "replica")
	warned := loggedWarnings(t, got.stderr)
	if len(warned) != 1 || !strings.Contains(warned["--ha-enabled, --ha-preferred-role, --ha-peer-address"], "argocd-agentctl hub") {
		t.Errorf("%v", warned)
	}
	if got.principal.Live.Redis != nil {
		t.Error("the Redis proxy is not disabled")
	}
	got = startPrincipal(t, []string{"ARGOCD_PRINCIPAL_DISABLE_REDIS_PROXY=true"})
	if got.principal.Live.Redis != nil || len(loggedWarnings(t, got.stderr)) != 0 {
		t.Errorf("the variable does not disable the Redis proxy: %s", got.stderr)
	}
}

// The command line wins over the environment, also with the name that existing installations use.
func TestExistingFlags_OverrideTheEnvironment(t *testing.T) {
	got := startPrincipal(t, []string{"ARGOCD_PRINCIPAL_NAMESPACE=other", "ARGOCD_PRINCIPAL_REDIS_CA_SECRET_NAME=other"},
		"-n", "mine", "--redis-tls-enabled", "--redis-ca-secret-name", "redis-ca", "--redis-proxy-port", freePort(t))
	if got.principal.Namespace != "mine" {
		t.Errorf("namespace %s", got.principal.Namespace)
	}
	if got.principal.ArgoSecrets["redis-ca"] == nil || len(got.principal.ArgoSecrets) != 1 {
		t.Errorf("Secrets %v", got.principal.ArgoSecrets)
	}
}

func TestRedisTLS_WithoutItsSettingIsWarnedOnce(t *testing.T) {
	got := startPrincipal(t, nil, "--redis-proxy-port", freePort(t), "--redis-ca-path", "missing", "--redis-proxy-server-tls-secret-name", "proxy")
	warned := loggedWarnings(t, got.stderr)
	if len(warned) != 1 || !strings.Contains(warned["--redis-tls-ca-path, --redis-proxy-server-tls-secret-name"], "--redis-tls-enabled") {
		t.Errorf("%v", warned)
	}
	if got.principal.Live.HubRedis.TLS != nil || got.principal.Live.RedisTLS != nil || len(got.principal.ArgoSecrets) != 0 {
		t.Errorf("TLS is used")
	}
}

// serveTLS accepts connections with a certificate, and completes their handshake.
func serveTLS(t *testing.T, cert, key []byte) string {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	return listener.Addr().String()
}

func dialRedis(endpoint *redis.Endpoint) error {
	cfg, err := endpoint.TLS()
	if err != nil {
		return err
	}
	conn, err := tls.Dial("tcp", endpoint.Address, cfg)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// The CA of Redis comes from a Secret. Without the Secret nothing is trusted, a change applies to the next connection, and
// an invalid Secret does not replace a valid one. The host name is verified.
func TestRedisCA_FromSecret(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(t, "redis")
	address := serveTLS(t, cert, key)
	quiet := append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0", "--redis-tls-enabled", "--redis-tls-ca-secret-name", "redis-ca")
	agent := start(t, nil, append(slices.Clone(quiet), "--redis-addr", address)...)
	if agent.agent == nil {
		t.Fatal(agent.stderr)
	}
	principal := startPrincipal(t, nil, "--redis-server-address", address, "--redis-proxy-port", freePort(t), "--redis-tls-enabled", "--redis-ca-secret-name", "redis-ca")
	for name, side := range map[string]struct {
		endpoint *redis.Endpoint
		secrets  secretHandlers
	}{"agent": {agent.agent.Live.Redis, agent.agent.Secrets}, "principal": {&principal.principal.Live.HubRedis, principal.principal.ArgoSecrets}} {
		set := side.secrets["redis-ca"]
		expect := func(when, want string) {
			t.Helper()
			err := dialRedis(side.endpoint)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, %s: %v, want %q", name, when, err, want)
			}
		}
		expect("before the Secret is read", "redis-ca is not read yet")
		if err := set(nil); err == nil {
			t.Error("a missing Secret is not reported")
		}
		expect("without the Secret", "Secret argocd/redis-ca not found")
		feed(t, side.secrets, "redis-ca", map[string][]byte{"ca.crt": other.pem})
		expect("with another CA", "unknown authority")
		feed(t, side.secrets, "redis-ca", map[string][]byte{"tls.crt": ca.pem})
		expect("with the CA", "")
		for _, data := range []map[string][]byte{nil, {}, {"ca.crt": []byte("?")}} {
			if err := set(data); err == nil {
				t.Errorf("%v is not reported", data)
			}
			expect("with an invalid Secret", "")
		}
	}
	_, port, _ := net.SplitHostPort(address)
	elsewhere := start(t, nil, append(slices.Clone(quiet), "--redis-addr", "127.0.0.2:"+port)...)
	feed(t, elsewhere.agent.Secrets, "redis-ca", map[string][]byte{"ca.crt": ca.pem})
	elsewhere.agent.Live.Redis.Address = address
	if err := dialRedis(elsewhere.agent.Live.Redis); err == nil || !strings.Contains(err.Error(), "not 127.0.0.2") {
		t.Errorf("the name in the certificate is not verified: %v", err)
	}
}

// The certificate of the Redis proxy comes from a Secret or from files. A renewed one is used for the next client.
func TestRedisProxyTLS_UsesCurrentCertificate(t *testing.T) {
	ca := newAuthority(t)
	first, firstKey := ca.issue(t, "first")
	second, secondKey := ca.issue(t, "second")
	trusted := &trustedCAs{}
	if err := trusted.set(map[string][]byte{"ca.crt": ca.pem}); err != nil {
		t.Fatal(err)
	}
	pool, err := trusted.current()
	if err != nil {
		t.Fatal(err)
	}
	served := func(cfg *tls.Config) (string, error) {
		near, far := net.Pipe()
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		_ = far.SetDeadline(time.Now().Add(10 * time.Second))
		ended := make(chan error, 1)
		go func() {
			server := tls.Server(far, cfg)
			err := server.Handshake()
			if err == nil {
				_, err = server.Write([]byte{1})
			}
			_ = far.Close()
			ended <- err
		}()
		client := tls.Client(near, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12})
		_, err := client.Read(make([]byte, 1))
		_ = near.Close()
		if err := errors.Join(<-ended, err); err != nil {
			return "", err
		}
		return client.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
	}
	fromSecret := startPrincipal(t, nil, "--redis-proxy-port", freePort(t), "--redis-tls-enabled", "--redis-tls-insecure",
		"--redis-proxy-server-tls-secret-name", "redis-proxy").principal
	if name, err := served(fromSecret.Live.RedisTLS); err == nil || !strings.Contains(err.Error(), "Secret argocd/redis-proxy") {
		t.Errorf("without the Secret: %s, %v", name, err)
	}
	feed(t, fromSecret.ArgoSecrets, "redis-proxy", map[string][]byte{"tls.crt": first, "tls.key": firstKey})
	if name, err := served(fromSecret.Live.RedisTLS); name != "first" {
		t.Errorf("%s, %v", name, err)
	}
	feed(t, fromSecret.ArgoSecrets, "redis-proxy", map[string][]byte{"tls.crt": second, "tls.key": secondKey})
	if name, err := served(fromSecret.Live.RedisTLS); name != "second" {
		t.Errorf("after a renewal: %s, %v", name, err)
	}
	// Existing ConfigMaps name both. The files are used.
	fromFiles := startPrincipal(t, []string{"ARGOCD_PRINCIPAL_REDIS_PROXY_SERVER_TLS_CERT_PATH=" + write(t, "tls.crt", second),
		"ARGOCD_PRINCIPAL_REDIS_PROXY_SERVER_TLS_KEY_PATH=" + write(t, "tls.key", secondKey), "ARGOCD_PRINCIPAL_REDIS_PROXY_SERVER_TLS_SECRET_NAME=argocd-redis-proxy-tls",
		"ARGOCD_PRINCIPAL_REDIS_CA_PATH=" + write(t, "ca.crt", ca.pem), "ARGOCD_PRINCIPAL_REDIS_CA_SECRET_NAME=argocd-redis-tls"},
		"--redis-proxy-port", freePort(t), "--redis-tls-enabled").principal
	if name, err := served(fromFiles.Live.RedisTLS); name != "second" || len(fromFiles.ArgoSecrets) != 0 {
		t.Errorf("from files: %s, %v, Secrets %v", name, err, fromFiles.ArgoSecrets)
	}
}
