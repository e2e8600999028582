package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/lab"
)

func TestDoctor_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-doctor")
	s.now = time.Now
	s.replace[`OU=[-_A-Za-z0-9]{8}`] = "OU=…"
	s.replace[`lacks permissions: get .*`] = "lacks permissions: …" // changes with the manifests
	s.replace[`v1\.\d+\.\d+[-+.\w]*`] = "VERSION"
	s.replace[`20\d\d-\d\d-\d\d \d\d:\d\d`] = "DATE"
	s.replace[`\(\d+d\)`] = "(DAYS)"
	s.replace[`(cannot resolve \S+ from this machine): .*`] = "$1: …"
	s.replace[`this cluster is [-0-9a-f]{36}`] = "this cluster is UID"
	s.replace[`\(subject .*?, fingerprint [0-9A-F]{64}\)`] = "(…)"
	s.names = map[string]string{}
	s.commands["listen"] = func(string) string {
		principal := fakePrincipal(t, l.Hub(), "cli-doctor")
		s.names["PRINCIPAL"] = principal.Listener.Addr().String()
		s.names["CONNECTOR"] = connectProxy(t, principal.Listener.Addr().String())
		return ""
	}
	s.commands["gate"] = func(string) string {
		s.names["GATE"] = terminatingProxy(t, principalWithWebSockets(t, l.Hub(), "cli-doctor"))
		return ""
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	s.commands["websocket"] = func(string) string {
		patch(t, l.Cluster("managed"), configMaps, "cli-doctor", paramsConfigMap, `{"data":{"ARGOCD_AGENT_ENABLE_WEBSOCKET":"true"}}`)
		return ""
	}
	s.commands["nowebsocket"] = func(string) string {
		patch(t, l.Cluster("managed"), configMaps, "cli-doctor", paramsConfigMap, `{"data":{"ARGOCD_AGENT_ENABLE_WEBSOCKET":null}}`)
		return ""
	}
	s.commands["redis"] = func(string) string {
		s.commands["apply"]("managed doctor-redis.yaml")
		lab.Await(t, "the pod to run", func(ctx context.Context) error {
			pod, err := l.Cluster("managed").Client().CoreV1().Pods("cli-doctor").Get(ctx, "argocd-redis-0", metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = errors.New(string(pod.Status.Phase))
			}
			return err
		})
		return ""
	}
	s.play("doctor.txt")
}

// fakePrincipal listens with the certificate and CA of the principal. Its responses do not matter.
func fakePrincipal(t *testing.T, hub *lab.Cluster, namespace string) *httptest.Server {
	t.Helper()
	get := func(name string) map[string][]byte {
		secret, err := hub.Client().CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	own := get(pki.PrincipalSecret)
	pair, err := tls.X509KeyPair(own[pki.CertKey], own[pki.KeyKey])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(get(pki.AuthoritySecret)[pki.BundleKey])
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// principalWithWebSockets listens like the principal and accepts WebSockets.
func principalWithWebSockets(t *testing.T, hub *lab.Cluster, namespace string) string {
	t.Helper()
	model := fakePrincipal(t, hub, namespace)
	sessions := transport.NewServer(transport.ServerConfig{Log: slog.New(slog.DiscardHandler), Events: noEvents{}})
	server := grpc.NewServer(grpc.ServerConfig{TLS: model.TLS, WebSocket: true,
		Authenticate: func(transport.Credentials) (transport.Peer, error) {
			return transport.Peer{}, errors.New("no sessions")
		}}, sessions)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { ended <- server.Run(ctx, listener) }()
	t.Cleanup(func() { cancel(); <-ended })
	return listener.Addr().String()
}

type noEvents struct{}

func (noEvents) Connected(*transport.Conn)                {}
func (noEvents) Received(*transport.Conn, engine.Message) {}
func (noEvents) Disconnected(*transport.Conn, error)      {}

// terminatingProxy terminates TLS with an unknown certificate and forwards HTTP/1.1.
func terminatingProxy(t *testing.T, to string) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: to})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(proxy)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestCustomized_IgnoresControllerSettingsWithoutController(t *testing.T) {
	hub := map[string]string{"resource.customizations.health.a_B": "x"}
	spoke := map[string]string{"resource.exclusions": "- events", "resource.customizations.ignoreResourceUpdates.all": "y", "resource.customizations.health.a_B": "z"}
	if got := customized(hub, spoke, false); !slices.Equal(got, []string{"resource.customizations.health.a_B"}) {
		t.Errorf("without: %q", got)
	}
	if got := customized(hub, spoke, true); len(got) != 3 {
		t.Errorf("with: %q", got)
	}
}

// connectProxy is an HTTP proxy that connects every client to one address.
func connectProxy(t *testing.T, to string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstream, err := new(net.Dialer).DialContext(context.WithoutCancel(r.Context()), "tcp", to)
		if err != nil || r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		client, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(upstream, buffer); _ = upstream.Close() }()
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

func TestRequiredPermissions_MatchManifests(t *testing.T) {
	for _, tc := range []struct {
		component           string
		namespaces          []string
		wanted, notRequired []string
	}{
		{"principal", nil, []string{"watch applications.argoproj.io in all namespaces", "patch agents/status.argocd-agent.argoproj-labs.io", "create secrets"}, nil},
		{"principal", []string{"w1", "w2"}, []string{"watch applications.argoproj.io in namespace w1", "delete applications.argoproj.io in namespace w2", "create secrets",
			"get namespaces kube-system in all namespaces"}, []string{"watch applications.argoproj.io in all namespaces"}},
		{"agent", nil, []string{"get namespaces kube-system in all namespaces", "update applications.argoproj.io", "patch leases.coordination.k8s.io"}, nil},
	} {
		all, err := requiredPermissions(tc.component, tc.namespaces)
		if err != nil {
			t.Fatal(err)
		}
		var permissions []string
		for _, r := range all {
			permissions = append(permissions, r.String())
			if got := r.attributes("argocd").Namespace; r.namespace != "" && got != r.namespace || r.clusterWide && got != "" {
				t.Errorf("%s is checked in namespace %q", r, got)
			}
		}
		for _, one := range tc.wanted {
			if !slices.Contains(permissions, one) {
				t.Errorf("%s: %q is not among %q", tc.component, one, permissions)
			}
		}
		for _, one := range tc.notRequired {
			if slices.Contains(permissions, one) {
				t.Errorf("%s: %q is among %q", tc.component, one, permissions)
			}
		}
	}
}

func TestBlockingPolicy_FindsPolicyThatBlocksClient(t *testing.T) {
	policy := func(name string, target map[string]string, from ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: target}, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from}}}}
	}
	pods := func(name string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}}
	}
	redis, server, agent := map[string]string{"name": "redis"}, pods("server"), pods("agent")
	for title, test := range map[string]struct {
		policies []networkingv1.NetworkPolicy
		by       string
	}{
		"none":                   {nil, ""},
		"other target":           {[]networkingv1.NetworkPolicy{policy("other", map[string]string{"name": "x"}, server)}, ""},
		"other clients only":     {[]networkingv1.NetworkPolicy{policy("redis", redis, server)}, "redis"},
		"our client as well":     {[]networkingv1.NetworkPolicy{policy("redis", redis, server, agent)}, ""},
		"one of two allows it":   {[]networkingv1.NetworkPolicy{policy("a", redis, server), policy("b", redis, agent)}, ""},
		"all clients":            {[]networkingv1.NetworkPolicy{policy("redis", redis)}, ""},
		"addresses, undecidable": {[]networkingv1.NetworkPolicy{policy("redis", redis, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}})}, ""},
	} {
		if by := blockingPolicy(test.policies, labels.Set(redis), labels.Set{"name": "agent"}); by != test.by {
			t.Errorf("%s: %q, want %q", title, by, test.by)
		}
	}
}
