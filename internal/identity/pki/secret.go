package pki

import (
	"context"
	"maps"
	"strings"
)

// Names of the Secrets.
const (
	AuthoritySecret = "argocd-agent-ca"                 // hub: tls.crt, tls.key, ca.crt; spoke: ca.crt
	PrincipalSecret = "argocd-agent-principal-tls"      // hub
	ProxySecret     = "argocd-agent-resource-proxy-tls" // hub
	ClientSecret    = "argocd-agent-client-tls"         // spoke
	JoinSecret      = "argocd-agent-join"               // spoke: the line to join with, as token
	joinPrefix      = JoinSecret + "-"                  // hub: one for each token, and its ID
)

// Keys of their data.
const (
	CertKey   = "tls.crt"
	KeyKey    = "tls.key"
	BundleKey = "ca.crt"
	crossKey  = "cross.crt" // of an authority that replaces another
)

const prefix = "argocd-agent.argoproj-labs.io/"

// ManagedLabel marks a Secret that we issue and renew. Without it, or with a mark
// of cert-manager, the Secret is somebody else's: it is read and never written.
const (
	ManagedLabel = prefix + "pki"
	KeptValue    = "kept"
)

// JoinLabel is on the hub's Secrets of tokens; its value is the agent's name.
const JoinLabel = prefix + "join"

// Types of Secrets.
const (
	typeTLS    = "kubernetes.io/tls"
	typeOpaque = "Opaque"
)

// Secret is one of Kubernetes.
type Secret struct {
	Name        string
	Revision    string // its resourceVersion; empty: it does not exist yet
	Type        string
	Labels      map[string]string
	Annotations map[string]string
	Data        map[string][]byte
}

// Managed reports whether the Secret is ours to renew.
func (s *Secret) Managed() bool { return s.Labels[ManagedLabel] == KeptValue && s.ManagedBy() == "" }

// ManagedBy names whoever else renews a Secret; empty: nobody that we know.
func (s *Secret) ManagedBy() string {
	for key := range s.Annotations {
		if strings.HasPrefix(key, "cert-manager.io/") {
			return "cert-manager"
		}
	}
	return ""
}

// clone returns a Secret that can be changed without changing this one.
func (s *Secret) clone() *Secret {
	c := *s
	c.Labels, c.Annotations, c.Data = maps.Clone(s.Labels), maps.Clone(s.Annotations), maps.Clone(s.Data)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	if c.Data == nil {
		c.Data = map[string][]byte{}
	}
	return &c
}

// Secrets are those of one namespace.
type Secrets interface {
	// Get reads one; nil: there is none.
	Get(ctx context.Context, name string) (*Secret, error)
	// List reads those with a label, whatever its value.
	List(ctx context.Context, label string) ([]*Secret, error)
	// Put creates a Secret that has no revision, and else replaces the one of that
	// revision. False: somebody else was quicker, and nothing is written.
	Put(ctx context.Context, s *Secret) (bool, error)
	// Delete deletes one of that revision. False: somebody else was quicker.
	Delete(ctx context.Context, s *Secret) (bool, error)
}
