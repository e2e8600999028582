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

func TestDoctorSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	s, l := inLab(t, "cli-doctor")
	s.now = time.Now
	s.replace[`OU=[-_A-Za-z0-9]{8}`] = "OU=…"
	s.replace[`may not: get .*`] = "may not: …" // what it needs changes with the manifests
	s.replace[`v1\.\d+\.\d+[-+.\w]*`] = "VERSION"
	s.replace[`20\d\d-\d\d-\d\d \d\d:\d\d`] = "DATE"
	s.replace[`\(\d+d\)`] = "(DAYS)"
	s.replace[`looked up from here: .*`] = "looked up from here: …"
	s.replace[`cluster \([-0-9a-f]{36}\)|this one is [-0-9a-f]{36}`] = "UID"
	s.replace[`\(subject .*?, fingerprint [0-9A-F]{64}\)`] = "(…)"
	s.names = map[string]string{}
	s.commands["listen"] = func(string) string {
		principal := standIn(t, l.Hub(), "cli-doctor")
		s.names["PRINCIPAL"] = principal.Listener.Addr().String()
		s.names["CONNECTOR"] = connectProxy(t, principal.Listener.Addr().String())
		return ""
	}
	s.commands["gate"] = func(string) string {
		s.names["GATE"] = gate(t, principalWithWebSockets(t, l.Hub(), "cli-doctor"))
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

// standIn listens as the principal does, with its certificate and CA; what it answers is of no interest.
func standIn(t *testing.T, hub *lab.Cluster, namespace string) *httptest.Server {
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

// principalWithWebSockets listens as the principal does, and lets agents in by WebSocket too.
func principalWithWebSockets(t *testing.T, hub *lab.Cluster, namespace string) string {
	t.Helper()
	model := standIn(t, hub, namespace)
	sessions := transport.NewServer(transport.ServerConfig{Log: slog.New(slog.DiscardHandler), Events: nobody{}})
	server := grpc.NewServer(grpc.ServerConfig{TLS: model.TLS, WebSocket: true,
		Authenticate: func(transport.Credentials) (transport.Peer, error) {
			return transport.Peer{}, errors.New("no session is opened here")
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

type nobody struct{}

func (nobody) Connected(*transport.Conn)                {}
func (nobody) Received(*transport.Conn, engine.Message) {}
func (nobody) Disconnected(*transport.Conn, error)      {}

// gate ends TLS, with a certificate that nobody knows, and passes HTTP/1.1 on.
func gate(t *testing.T, to string) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: to})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}} // as such proxies do
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(proxy)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestWhatOnlyAControllerGoesByMattersOnlyWhereThereIsOne(t *testing.T) {
	hub := map[string]string{"resource.customizations.health.a_B": "x"}
	spoke := map[string]string{"resource.exclusions": "- events", "resource.customizations.ignoreResourceUpdates.all": "y", "resource.customizations.health.a_B": "z"}
	if got := customized(hub, spoke, false); !slices.Equal(got, []string{"resource.customizations.health.a_B"}) {
		t.Errorf("without: %q", got)
	}
	if got := customized(hub, spoke, true); len(got) != 3 {
		t.Errorf("with: %q", got)
	}
}

// connectProxy is an HTTP proxy that leads everybody to one place.
func connectProxy(t *testing.T, to string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := new(net.Dialer).DialContext(context.WithoutCancel(r.Context()), "tcp", to)
		if err != nil || r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, buffer); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

func TestRightsAreThoseOfTheManifests(t *testing.T) {
	for program, wanted := range map[string][]string{
		"principal": {"watch applications.argoproj.io in all namespaces", "patch agents/status.argocd-agent.argoproj-labs.io", "create secrets"},
		"agent":     {"get namespaces kube-system in all namespaces", "update applications.argoproj.io", "patch leases.coordination.k8s.io"},
	} {
		all, err := neededRights(program)
		if err != nil {
			t.Fatal(err)
		}
		var spelled []string
		for _, r := range all {
			spelled = append(spelled, r.String())
		}
		for _, one := range wanted {
			if !slices.Contains(spelled, one) {
				t.Errorf("%s: %q is not among %q", program, one, spelled)
			}
		}
	}
}

func TestNetworkPoliciesThatShutUsOutAreFound(t *testing.T) {
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
		"none":                     {nil, ""},
		"of something else":        {[]networkingv1.NetworkPolicy{policy("other", map[string]string{"name": "x"}, server)}, ""},
		"for others alone":         {[]networkingv1.NetworkPolicy{policy("redis", redis, server)}, "redis"},
		"for us too":               {[]networkingv1.NetworkPolicy{policy("redis", redis, server, agent)}, ""},
		"one of two lets us in":    {[]networkingv1.NetworkPolicy{policy("a", redis, server), policy("b", redis, agent)}, ""},
		"for everybody":            {[]networkingv1.NetworkPolicy{policy("redis", redis)}, ""},
		"for addresses, who knows": {[]networkingv1.NetworkPolicy{policy("redis", redis, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}})}, ""},
	} {
		if by := blockingPolicy(test.policies, labels.Set(redis), labels.Set{"name": "agent"}); by != test.by {
			t.Errorf("%s: %q, want %q", title, by, test.by)
		}
	}
}
