package agent

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Config of an agent. cmd/argocd-agent fills it from flags.
type Config struct {
	Cluster   *rest.Config      // the workload cluster's API server
	Namespace string            // of Argo CD
	Version   string            // of this build
	Commit    string            // of this build
	Date      string            // of the commit
	Facts     map[string]string // of the workload cluster, in addition to what the agent reads

	Mode              kind.Mode
	Mapping           kind.Mapping
	AllowedNamespaces []string // globs, for Applications
	CreateNamespaces  bool
	LabelSelector     kind.Selector
	Policy            reconcile.Policy
	ApplicationEvents bool          // send Events of Applications to the hub
	OnRecreate        string        // "resync": resync an Application that was deleted on the spoke and created again
	SyncTimeout       time.Duration // for the first read of the cluster. If 0, there is none.

	// SelfUpgradeDeployment is the Deployment of this agent, whose image the hub may change. If empty, it cannot.
	SelfUpgradeDeployment string

	// The connection.
	Servers     []string                                 // host:port of the principal, the preferred address first
	TLS         func(server string) (*tls.Config, error) // called for each attempt. If nil, plaintext to a mesh sidecar.
	Explain     func(error) error                        // makes TLS errors understandable; may be nil
	Proxy       func(*http.Request) (*url.URL, error)    // usually http.ProxyFromEnvironment; may be nil
	HeaderName  string                                   // for plaintext: the header that names the agent
	HeaderValue string
	KeepAlive   time.Duration
	Heartbeat   time.Duration // between beacons. If 0, the default.
	Compression bool
	WebSocket   bool // tunnel the connection through a WebSocket

	// Secrets are the Secrets of Namespace with certificates, by name. The function is called with the data after each
	// change, or with nil if there is no Secret. Its error is logged.
	Secrets map[string]func(data map[string][]byte) error
	// Certificates are the Secrets that the agent renews. If nil, certificates come from files or from a mesh.
	Certificates *Certificates

	Live   Live   // live access from the hub
	Shared Shared // shared mode

	MetricsListener net.Listener // If nil, metrics are not served.
	HealthListener  net.Listener // If nil, probes are not served.

	Log    *slog.Logger
	Trace  *trace.Tracer  // may be nil
	Audit  *audit.Log     // may be nil
	Jitter func() float64 // 0 to 1

	// Dial opens TCP connections to the hub or to a proxy. If nil, the default dialer is used. Benchmarks add faults.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Reported gets every report of the reconcile core. It must not block. May be nil.
	Reported func(reconcile.Report)
}

// oneHub reports whether all addresses of the hub must lead to hubs of one identity.
func (a *agent) oneHub() bool { return len(a.cfg.Servers) > 1 }

func (a *agent) nodeConfig() reconcile.Config {
	cfg := a.cfg
	return reconcile.Config{
		Side: kind.Spoke, ArgoNamespace: cfg.Namespace, ClusterUID: a.uid, Version: cfg.Version,
		Settings: kind.Settings{AllowedNamespaces: cfg.AllowedNamespaces, LabelSelector: cfg.LabelSelector, CreateNamespaces: cfg.CreateNamespaces},
		Policy:   cfg.Policy, Mode: cfg.Mode, Mapping: cfg.Mapping, KnownStore: a.state.known.Store, KnownSeen: a.state.known.Seen, StoreUntrusted: a.state.known.StoreUntrusted, KnownCommands: a.state.known.Commands, KnownDeletions: a.state.known.Deletions, KnownHub: a.state.known.Hub, AwaitPolicy: true,
		KnownGeneration: a.state.known.Generation, FormerGenerations: a.state.known.FormerGenerations, KnownRemovals: a.state.known.Removals, OneHub: a.oneHub(),
		Tuning: engine.Tuning{Beacon: engine.Time(cfg.Heartbeat.Milliseconds())},
	}
}
