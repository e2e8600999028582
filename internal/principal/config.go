package principal

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Config of a Principal. The command line fills it; see cmd/argocd-agent.
type Config struct {
	Cluster   *rest.Config // the hub's API server
	Namespace string       // of Argo CD on the hub
	Version   string       // of this build

	// What is replicated.
	Mapping                   kind.Mapping
	AllowedNamespaces         []string // globs
	LabelSelector             kind.Selector
	ShareUnscopedRepositories bool
	SyncRepositoryTrust       bool

	// Agents and their namespaces.
	RequireRegistration bool // an agent without an Agent object is refused
	NamespaceCreate     NamespaceCreate
	ResourceProxy       string // host:port that goes into cluster Secrets
	Replica             string // what this principal is called among others; empty: the host's name
	ReplicaAddress      string // host:port where others reach its resource proxy; empty: they do not

	// The connection.
	Listener     net.Listener
	TLS          *tls.Config // nil: plaintext, for a mesh
	Authenticate transport.Authenticate
	Explain      func(error) error // makes TLS errors understandable; may be nil

	// Secrets of Namespace that certificates come from, by name. Whoever watches
	// them passes on their data whenever it changes, nil where there is none; the
	// error says why it is not used.
	Secrets map[string]func(data map[string][]byte) error
	// Issue is what the principal does about certificates itself; nil: nothing.
	Issue *issue.Config
	// Revocations is what TLS and Authenticate ask. Whoever watches ConfigMap
	// argocd-agent-tls-blocklist sets it, and cuts those that are new in it; nil:
	// there are no certificates.
	Revocations *identity.Revocations

	WebSocket            bool          // agents may come by WebSocket too
	KeepaliveMinInterval time.Duration // an agent that pings more often is sent away; 0: the default

	Live   Live   // access to what runs behind agents
	Shared Shared // what agents may use here

	MetricsListener net.Listener // nil: no metrics
	HealthListener  net.Listener // nil: no probes

	Log    *slog.Logger
	Trace  *trace.Tracer  // nil: nothing is traced
	Jitter func() float64 // 0 to 1
}

// NamespaceCreate says which namespaces are created for agents.
type NamespaceCreate struct {
	Enable  bool
	Pattern string // regular expression that the name must match; empty: any
	Labels  map[string]string
}
