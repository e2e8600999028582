package principal

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/live"
	"github.com/argocd-agent/argocd-agent/internal/live/shared"
	"github.com/argocd-agent/argocd-agent/internal/search"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Config of a principal. The command line fills it.
type Config struct {
	Cluster   *rest.Config // the hub's API server
	Namespace string       // of Argo CD on the hub
	// PKINamespace is the namespace of CA, certificates and join tokens. If empty, Namespace.
	PKINamespace string
	Version      string // of this build
	Commit       string // of this build
	Date         string // of the commit

	// What is replicated.
	Mapping                   kind.Mapping
	AllowedNamespaces         []string // globs
	ApplicationNamespaces     []string // in which Applications are read and written; if empty, all
	LabelSelector             kind.Selector
	ShareUnscopedRepositories bool
	SyncRepositoryTrust       bool
	SyncArgoSettings          bool
	SyncWriteCredentials      bool
	ApplicationEvents         bool // accept Events of agents' Applications

	// Limits of what is stored for agents without limits of their own.
	Limits kind.Limits

	// What Applications show while their agent is disconnected.
	Freshness fleet.FreshnessSettings

	// Agents and their namespaces.
	RequireRegistration bool // refuse agents without Agent or mode
	NamespaceCreate     NamespaceCreate
	ResourceProxy       string // host:port in cluster Secrets
	Replica             string // name of this principal replica; if empty, the host name
	ReplicaAddress      string // host:port at which other replicas reach the resource proxy; if empty, they cannot

	// HubLease decides which hub of a group is active. If it has no cluster, users do.
	HubLease hublease.Settings

	// ActiveHubs are the addresses of the active hub, host:port, the preferred one first. They are used if this hub is a
	// standby. If empty, it receives nothing.
	ActiveHubs []string

	// The connection.
	Listener     net.Listener
	TLS          *tls.Config // if nil, plaintext for a service mesh
	Authenticate transport.Authenticate
	Explain      func(error) error // explains TLS errors; may be nil

	// Secrets are handlers of Secrets in PKINamespace, by name. Each is called with the data after a change, or with nil if
	// there is no Secret. It returns why the data is not used.
	Secrets map[string]func(data map[string][]byte) error
	// ArgoSecrets are handlers of Secrets in Namespace.
	ArgoSecrets map[string]func(data map[string][]byte) error
	// Issue configures the certificates that the principal issues. If nil, it issues none.
	Issue *issue.Config
	// Revocations receives the revoked certificates that TLS and Authenticate check. If nil, certificates are not used.
	Revocations *identity.Revocations

	WebSocket            bool          // accept agents by WebSocket too
	KeepaliveMinInterval time.Duration // agents that ping more often are disconnected; if zero, the default

	Live   live.Settings
	Shared shared.Settings
	Search search.Settings

	MetricsListener net.Listener // if nil, no metrics
	HealthListener  net.Listener // if nil, no probes

	Log    *slog.Logger
	Trace  *trace.Tracer  // if nil, nothing is traced
	Audit  *audit.Log     // if nil, there is no audit log
	Jitter func() float64 // 0 to 1
}

// NamespaceCreate configures which namespaces are created for agents.
type NamespaceCreate struct {
	Enable  bool
	Pattern string // regular expression that the name must match; if empty, all names
	Labels  map[string]string
}
