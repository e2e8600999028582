package pki

import (
	"context"
	"errors"
	"maps"
	"strings"
)

// Names of the Secrets.
const (
	AuthoritySecret = "argocd-agent-ca"                 // hub: tls.crt, tls.key, ca.crt; spoke: ca.crt
	PrincipalSecret = "argocd-agent-principal-tls"      // hub
	ProxySecret     = "argocd-agent-resource-proxy-tls" // hub
	ClientSecret    = "argocd-agent-client-tls"         // spoke
	JoinSecret      = "argocd-agent-join"               // spoke: key token has a join token
	joinPrefix      = JoinSecret + "-"                  // hub: one for each token, with its ID
)

// Keys of their data.
const (
	CertKey   = "tls.crt"
	KeyKey    = "tls.key"
	BundleKey = "ca.crt"
	crossKey  = "cross.crt" // of a CA during a rotation

	// NextKeyKey of an agent's client certificate is the key of a renewal in progress. It is stored before the request, so
	// that a repeated request has the same key.
	NextKeyKey = "next.key"
)

const prefix = "argocd-agent.argoproj-labs.io/"

// ManagedLabel marks a Secret that argocd-agent issues and renews. Without it, or with an annotation of cert-manager, the
// Secret is read and never written.
const (
	ManagedLabel = prefix + "pki"
	ManagedValue = "managed"
)

// JoinLabel marks the hub's Secrets of join tokens. Its value is the agent's name.
const JoinLabel = prefix + "join"

// Types of Secrets.
const (
	typeTLS    = "kubernetes.io/tls"
	typeOpaque = "Opaque"
)

// Secret is a Kubernetes Secret.
type Secret struct {
	Name        string
	Revision    string // resourceVersion; empty if it does not exist yet
	Type        string
	Labels      map[string]string
	Annotations map[string]string
	Data        map[string][]byte
}

// Managed reports whether argocd-agent renews the Secret.
func (s *Secret) Managed() bool { return s.Labels[ManagedLabel] == ManagedValue && s.ManagedBy() == "" }

// ManagedBy returns the name of another known controller that renews the Secret, or "".
func (s *Secret) ManagedBy() string {
	for key := range s.Annotations {
		if strings.HasPrefix(key, "cert-manager.io/") {
			return "cert-manager"
		}
	}
	return ""
}

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

// Secrets reads and writes the Secrets of one namespace. Errors name the Secret.
type Secrets interface {
	// Get returns a Secret, or nil if it does not exist.
	Get(ctx context.Context, name string) (*Secret, error)
	// List returns the Secrets with a label of any value.
	List(ctx context.Context, label string) ([]*Secret, error)
	// Put creates a Secret without a revision, and replaces one with a revision. It returns ErrBusy after a conflict.
	Put(ctx context.Context, s *Secret) error
	// Delete deletes a Secret. It returns false after a conflict.
	Delete(ctx context.Context, s *Secret) (bool, error)
}

// ErrBusy means that a Secret was changed concurrently.
var ErrBusy = errors.New("concurrent changes: try again")

// update changes a Secret and retries after conflicts. If the Secret does not exist, f gets nil. If f returns nil, update
// writes nothing.
func update(ctx context.Context, to Secrets, name string, f func(*Secret) (*Secret, error)) error {
	const maxAttempts = 5
	for attempt := 1; ; attempt++ {
		s, err := to.Get(ctx, name)
		if err != nil {
			return err
		}
		next, err := f(s)
		if err != nil || next == nil {
			return err
		}
		if err := to.Put(ctx, next); !errors.Is(err, ErrBusy) || attempt == maxAttempts {
			return err
		}
	}
}

// PutPair writes a certificate, its key and a bundle into a Secret. If s is nil, it creates one.
func PutPair(ctx context.Context, to Secrets, name string, s *Secret, pair Pair, bundle []byte) error {
	return to.Put(ctx, withPair(name, s, pair, bundle))
}

func withPair(name string, s *Secret, pair Pair, bundle []byte) *Secret {
	s = managed(s, name, typeTLS)
	s.Data[CertKey], s.Data[KeyKey] = pair.Cert, pair.Key
	delete(s.Data, NextKeyKey)
	if bundle != nil {
		s.Data[BundleKey] = bundle
	}
	return s
}

// PutBundle writes the trusted CAs into a Secret of a spoke. If s is nil, it creates one.
func PutBundle(ctx context.Context, to Secrets, name string, s *Secret, bundle []byte) error {
	s = managed(s, name, typeOpaque)
	s.Data[BundleKey] = bundle
	return to.Put(ctx, s)
}

// managed returns a copy of a Secret, or a new one, with the label that marks it as managed by argocd-agent.
func managed(s *Secret, name, kind string) *Secret {
	if s == nil {
		s = &Secret{Name: name, Type: kind}
	}
	s = s.clone()
	s.Labels[ManagedLabel] = ManagedValue
	return s
}
