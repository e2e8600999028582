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

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Config of an Agent. The command line fills it; see cmd/argocd-agent.
type Config struct {
	Cluster   *rest.Config // the workload cluster's API server
	Namespace string       // of Argo CD there
	Version   string       // of this build

	Mode              kind.Mode
	Mapping           kind.Mapping
	AllowedNamespaces []string // globs; of Applications
	CreateNamespaces  bool
	LabelSelector     kind.Selector
	Policy            reconcile.Policy
	OnRecreate        string        // after an Application deleted here by hand was put back; resync, else nothing: status follows the spoke anyway
	SyncTimeout       time.Duration // for the first reading of the cluster; 0: none

	// The connection.
	Server      string                                // host:port of the principal
	TLS         func() (*tls.Config, error)           // asked for each attempt; nil: plaintext, to a mesh's sidecar
	Explain     func(error) error                     // makes TLS errors understandable; may be nil
	Proxy       func(*http.Request) (*url.URL, error) // usually http.ProxyFromEnvironment; nil: none
	HeaderName  string                                // plaintext: the header that names the agent ...
	HeaderValue string                                // ... and its value
	KeepAlive   time.Duration
	Heartbeat   time.Duration // between beacons; 0: the default
	Compression bool
	WebSocket   bool // around the connection, where HTTP/2 does not get through

	// Secrets of Namespace that certificates come from, by name. Whoever watches
	// them passes on their data whenever it changes, nil where there is none; the
	// error says why it is not used.
	Secrets map[string]func(data map[string][]byte) error
	// Certificates are those of the Secrets that the agent keeps up itself; nil:
	// they come from files, or from a mesh.
	Certificates *Certificates

	Live   Live   // what the hub may reach here
	Shared Shared // what is used of the hub

	MetricsListener net.Listener // nil: no metrics
	HealthListener  net.Listener // nil: no probes

	Log    *slog.Logger
	Trace  *trace.Tracer  // nil: nothing is traced
	Jitter func() float64 // 0 to 1

	// Dial makes TCP connections to the hub, or to the proxy on the way; nil: the
	// usual. Benchmarks make bad links of it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Reported hears of everything that the node reports, beside the log; it must
	// not block. Nil: nobody does.
	Reported func(reconcile.Report)
}

// nodeConfig is what of it concerns the node.
func (a *agent) nodeConfig() reconcile.Config {
	cfg := a.cfg
	return reconcile.Config{
		Side: kind.Spoke, ArgoNamespace: cfg.Namespace, ClusterUID: a.uid, Version: cfg.Version,
		Settings: kind.Settings{AllowedNamespaces: cfg.AllowedNamespaces, LabelSelector: cfg.LabelSelector, CreateNamespaces: cfg.CreateNamespaces},
		Policy:   cfg.Policy, Mode: cfg.Mode, Mapping: cfg.Mapping, KnownStore: a.memory.known.Store, KnownSeen: a.memory.known.Seen, Suspect: a.memory.known.StoreUntrusted, KnownCommands: a.memory.known.Commands,
		Tuning: engine.Tuning{Beacon: engine.Time(cfg.Heartbeat.Milliseconds())},
	}
}
