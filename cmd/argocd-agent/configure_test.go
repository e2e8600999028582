package main

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func TestPrincipal_ConfigFollowsSettings(t *testing.T) {
	port, proxy, cache := freePort(t), freePort(t), freePort(t)
	got := start(t, nil, "principal", "--kubeconfig", kubeconfig(t), "--kubecontext", "second", "--listen-host", "127.0.0.1", "--listen-port", port,
		"--metrics-port", freePort(t), "--healthz-port", "0", "--destination-based-mapping", "--allowed-namespaces", "a", "--allowed-namespaces", "b-*",
		"--label-selector", "team=web", "--share-unscoped-repositories", "--sync-repository-trust", "--sync-argocd-settings", "--sync-write-credentials", "--application-events=false", "--require-registration",
		"--namespace-create-enable", "--namespace-create-pattern", "team-.*", "--namespace-create-labels", "a=b,c=d",
		"--resource-proxy-address", "proxy:9090", "--resource-proxy-port", proxy, "--redis-proxy-port", cache, "--redis-server-address", "redis:1",
		"--redis-creds-dir-path", filepath.Dir(write(t, "auth", []byte("secret\n"))), "--redis-compression-type", "none", "--keepalive-min-interval", "5s", "--enable-websocket", "--tls-min-version", "tls1.2")
	cfg := got.principal
	if cfg == nil {
		t.Fatal(got.stderr)
	}
	switch {
	case cfg.Cluster.Host != "https://127.0.0.2:1", cfg.Namespace != "elsewhere", cfg.Cluster.QPS >= 0, cfg.Cluster.UserAgent == "":
		t.Errorf("cluster: %+v, namespace %s", cfg.Cluster, cfg.Namespace)
	case cfg.Mapping != kind.ByDestination, !slices.Equal(cfg.AllowedNamespaces, []string{"a", "b-*"}),
		!cfg.ShareUnscopedRepositories, !cfg.SyncRepositoryTrust, !cfg.SyncArgoSettings, !cfg.SyncWriteCredentials, cfg.ApplicationEvents, !cfg.RequireRegistration, cfg.ResourceProxy != "proxy:9090":
		t.Errorf("replication: %+v", cfg)
	case !cfg.LabelSelector.Matches(map[string]string{"team": "web"}), cfg.LabelSelector.Matches(nil):
		t.Error("label selector")
	case !cfg.NamespaceCreate.Enable, cfg.NamespaceCreate.Pattern != "team-.*", !maps.Equal(cfg.NamespaceCreate.Labels, map[string]string{"a": "b", "c": "d"}):
		t.Errorf("namespaces: %+v", cfg.NamespaceCreate)
	case cfg.Listener.Addr().String() != "127.0.0.1:"+port, cfg.MetricsListener == nil, cfg.HealthListener != nil:
		t.Errorf("listeners: %v %v %v", cfg.Listener, cfg.MetricsListener, cfg.HealthListener)
	case cfg.TLS == nil, cfg.TLS.MinVersion != tlsVersions[tls12], cfg.Authenticate == nil, cfg.Revocations == nil, cfg.Explain == nil, cfg.KeepaliveMinInterval != 5*time.Second, !cfg.WebSocket:
		t.Errorf("connection: %+v", cfg)
	case cfg.Live.Resource.Addr().String() != "127.0.0.1:"+proxy, cfg.Live.ResourceTLS == nil, cfg.Live.Redis.Addr().String() != "127.0.0.1:"+cache,
		cfg.Live.HubRedis.Address != "redis:1", cfg.Live.HubRedis.TLS != nil, cfg.Live.RedisCompressed:
		t.Errorf("live access: %+v", cfg.Live)
	case cfg.Log == nil, cfg.Version == "", cfg.Commit == "", cfg.Date == "", cfg.Jitter() < 0, cfg.Jitter() >= 1:
		t.Errorf("environment: %+v", cfg)
	}
	if names := slices.Sorted(maps.Keys(cfg.Secrets)); !slices.Equal(names, []string{"argocd-agent-ca", "argocd-agent-principal-tls", "argocd-agent-resource-proxy-tls"}) {
		t.Errorf("Secrets %v", names)
	}
	if as, err := cfg.Live.HubRedis.Credentials(); err != nil || as.Password != "secret" {
		t.Errorf("credentials of Redis: %v", err)
	}
	for _, one := range []string{port, proxy, cache} {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+one); err == nil {
			conn.Close()
			t.Error("a port is still open")
		}
	}
}

func TestPrincipal_ConfigOfSearch(t *testing.T) {
	got := start(t, nil, "principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t), "--metrics-port", "0", "--healthz-port", "0",
		"--pki-namespace", "pki", "--search-port", freePort(t), "--search-extension-secret", "extension", "--search-allowed-origins", "https://argocd.example,http://localhost:8080", "--search-url", "https://fleet.example:8444")
	cfg := got.principal
	if cfg == nil {
		t.Fatal(got.stderr)
	}
	if cfg.Search.Listener == nil || cfg.Search.TLS == nil || cfg.Search.Extension == nil || !slices.Equal(cfg.Search.AllowedOrigins, []string{"https://argocd.example", "http://localhost:8080"}) {
		t.Errorf("%+v", cfg.Search)
	}
	w := httptest.NewRecorder()
	cfg.Search.Page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/extension.js", http.NoBody))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "https://fleet.example:8444") {
		t.Errorf("the extension has no address: %d", w.Code)
	}
	if cfg.ArgoSecrets["extension"] == nil || cfg.Secrets["extension"] != nil { // where argocd-server reads it
		t.Errorf("Secrets in the Argo CD namespace: %v", slices.Sorted(maps.Keys(cfg.ArgoSecrets)))
	}
	if names := cfg.Issue.Servers["argocd-agent-principal-tls"]; !slices.Contains(names, "argocd-agent-search."+cfg.Namespace+".svc") {
		t.Errorf("names of the certificate: %v", names)
	}
}

func TestAgent_ConfigFollowsSettings(t *testing.T) {
	got := start(t, nil, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", freePort(t), "--namespace", "argo",
		"--destination-based-mapping", "--create-namespace", "--adoption-policy", "never", "--source-uid-mismatch-policy", "recreate",
		"--on-application-recreate", "resync", "--informer-sync-timeout", "30s", "--enable-compression", "--enable-websocket", "--keep-alive-ping-interval", "15s", "--heartbeat-interval", "20s",
		"--redis-addr", "redis:1", "--redis-tls-enabled", "--resource-proxy-level", "namespaces", "--resource-proxy-namespaces", "a,b-*",
		"--resource-proxy-exec=false", "--resource-proxy-secrets", "plain")...)
	cfg := got.agent
	if cfg == nil {
		t.Fatal(got.stderr)
	}
	switch {
	case cfg.Cluster.Host != "https://127.0.0.1:1", cfg.Namespace != "argo":
		t.Errorf("cluster: %+v, namespace %s", cfg.Cluster, cfg.Namespace)
	case cfg.Mode != kind.Managed, cfg.Mapping != kind.ByDestination, !cfg.CreateNamespaces, cfg.LabelSelector != nil,
		!cfg.Policy.AdoptNever, !cfg.Policy.Recreate, cfg.OnRecreate != "resync", cfg.SyncTimeout != 30*time.Second:
		t.Errorf("replication: %+v", cfg)
	case !slices.Equal(cfg.Servers, []string{"hub.example:443"}), cfg.TLS == nil, cfg.Explain == nil, cfg.Proxy == nil, !cfg.Compression, !cfg.WebSocket, cfg.KeepAlive != 15*time.Second, cfg.Heartbeat != 20*time.Second, cfg.HeaderName != "":
		t.Errorf("connection: %+v", cfg)
	case !cfg.Live.Resources, cfg.Live.Redis.Address != "redis:1", cfg.Live.Redis.TLS == nil, cfg.Live.Policy.Level != resource.LevelNamespaces,
		!slices.Equal(cfg.Live.Policy.Namespaces, []string{"a", "b-*"}), !cfg.Live.Policy.NoExec, cfg.Live.Policy.NoLogs, cfg.Live.Policy.Secrets != resource.SecretsPlain:
		t.Errorf("live access: %+v", cfg.Live)
	case cfg.MetricsListener != nil, cfg.HealthListener == nil:
		t.Errorf("listeners: %v %v", cfg.MetricsListener, cfg.HealthListener)
	}
	if names := slices.Sorted(maps.Keys(cfg.Secrets)); !slices.Equal(names, []string{"argocd-agent-ca", "argocd-agent-client-tls"}) {
		t.Errorf("Secrets %v", names)
	}
}

func TestMesh_NeedsNoCertificates(t *testing.T) {
	quiet := []string{"--metrics-port", "0", "--healthz-port", "0", "--insecure-plaintext"}
	a := start(t, nil, append(append(agentArgs(t), quiet...), "--creds", "header:x-agent:one:two")...).agent
	if a == nil || a.TLS != nil || a.Secrets != nil || a.HeaderName != "x-agent" || a.HeaderValue != "one:two" {
		t.Errorf("agent: %+v", a)
	}
	p := start(t, nil, append([]string{"principal", "--kubeconfig", kubeconfig(t), "--listen-port", freePort(t), "--auth", "header:x-agent:^(.+)$",
		"--auth-header-sources", "10.1.0.0/16,192.0.2.7", "--enable-resource-proxy=false", "--redis-proxy-port", "0"}, quiet...)...).principal
	if p == nil || p.TLS != nil || p.Secrets != nil || p.Live.Resource != nil || p.Live.Redis != nil || p.Revocations != nil || p.Authenticate == nil {
		t.Fatalf("principal: %+v", p)
	}
	for from, trusted := range map[string]bool{"10.1.2.3": true, "192.0.2.7": true, "192.0.2.8": false, "127.0.0.1": false} {
		who, err := p.Authenticate(transport.Credentials{RemoteAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Header: func(string) []string { return []string{"w1"} }})
		if (err == nil) != trusted || trusted && who.Agent != "w1" {
			t.Errorf("header from %s: %v, %v", from, who, err)
		}
	}
}

func TestSetup_FailureIsNoUsageError(t *testing.T) {
	busy, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	for want, args := range map[string][]string{
		"find the cluster: context \"third\" does not exist": {"--kubecontext", "third"},
		"listen for probes: listen tcp :" + port:             {"--healthz-port", port, "--metrics-port", "0"},
		"no such file":                                       {"--tls-client-cert", "/none", "--tls-client-key", "/none", "--root-ca-path", "/none"},
	} {
		got := start(t, nil, append(agentArgs(t), args...)...)
		if got.code != cmdline.ExitFailure || !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 || got.agent != nil {
			t.Errorf("%q: exit code %d, %s, want %s", args, got.code, got.stderr, want)
		}
	}
}

func TestNamespace_FollowsContextThenPod(t *testing.T) {
	contexts := clientcmdapi.Config{CurrentContext: "one", Contexts: map[string]*clientcmdapi.Context{
		"one": {Namespace: "first"}, "two": {}}}
	pod := write(t, "namespace", []byte("pods\n"))
	for _, tc := range []struct {
		settings clusterSettings
		raw      clientcmdapi.Config
		pod      string
		want     string
	}{
		{clusterSettings{}, contexts, pod, "first"},
		{clusterSettings{context: "two"}, contexts, pod, "argocd"},
		{clusterSettings{}, clientcmdapi.Config{}, pod, "pods"},
		{clusterSettings{}, clientcmdapi.Config{}, "/none", "argocd"},
	} {
		if got := tc.settings.impliedNamespace(tc.raw, tc.pod); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc, got, tc.want)
		}
	}
}

func TestProfiler_ServesWhileComponentRuns(t *testing.T) {
	number := freePort(t)
	got := start(t, nil, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0", "--pprof-port", number)...)
	if got.agent == nil || !strings.Contains(got.stderr, "127.0.0.1:"+number) {
		t.Fatalf("not started: %s", got.stderr)
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	err = withProfiler(t.Context(), port, slog.New(slog.DiscardHandler), func(context.Context) error {
		resp, err := http.Get("http://127.0.0.1:" + number + "/debug/pprof/cmdline")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPrincipal_RequiresRegistrationByDefault(t *testing.T) {
	for args, required := range map[string]bool{
		"": true, "--require-registration=false": false, "--enable-self-cluster-registration": false, "--enable-self-cluster-registration=false": true,
	} {
		command := append([]string{"principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t),
			"--metrics-port", "0", "--healthz-port", "0", "--enable-resource-proxy=false", "--redis-proxy-port", "0"}, strings.Fields(args)...)
		got := start(t, nil, command...)
		if got.principal == nil {
			t.Fatal(got.stderr)
		}
		if got.principal.RequireRegistration != required {
			t.Errorf("%q: registration is required: %v", args, !required)
		}
	}
}

func TestPrincipal_SizesFollowMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64][4]int{math.MaxInt64: {512, 256, 256, 128}, 512 << 20: {64, 64, 64, 64}} {
		if debug.SetMemoryLimit(limit); limit != math.MaxInt64 {
			debug.SetMemoryLimit(int64(memoryLimitShare * float64(limit)))
		}
		got := start(t, nil, "principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t), "--metrics-port", "0", "--healthz-port", "0",
			"--resource-proxy-port", freePort(t), "--redis-proxy-port", freePort(t), "--agent-max-items", "7", "--shared-redis-max-mebibytes", "3")
		cfg := got.principal
		if cfg == nil {
			t.Fatal(got.stderr)
		}
		round := func(bytes int) int { return (bytes + 1<<19) >> 20 }
		sizes := [4]int{round(cfg.Limits.Bytes), round(cfg.Live.RedisCacheBytes), round(cfg.Live.RedisValueBytes), round(int(cfg.Shared.RedisLimits.Passing))}
		if sizes != want || cfg.Limits.Items != 7 || cfg.Shared.RedisLimits.Total != 3<<20 {
			t.Errorf("limit %d: %v, %+v, %+v", limit, sizes, cfg.Limits, cfg.Shared.RedisLimits)
		}
	}
}
