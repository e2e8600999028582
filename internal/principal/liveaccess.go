package principal

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Access is what Argo CD shows to the resource proxy, for the cluster Secrets
// that the principal makes itself: one client certificate for all of them, to
// which each Secret adds a token of its own that names the agent.
type Access struct {
	mu            sync.Mutex
	cert, key, ca []byte
	subject       []byte // of the certificate, as it is encoded
	changed       func()
}

// Load reads it out of a Secret.
func (a *Access) Load(data map[string][]byte) error {
	if data == nil {
		return fmt.Errorf("there is no such Secret")
	}
	for _, part := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if len(data[part]) == 0 {
			return fmt.Errorf("it has no %s", part)
		}
	}
	certs, err := pki.Certificates(data["tls.crt"])
	if err != nil {
		return fmt.Errorf("its tls.crt: %w", err)
	}
	a.mu.Lock()
	a.cert, a.key, a.ca = data["tls.crt"], data["tls.key"], data["ca.crt"]
	a.subject = certs[0].RawSubject
	changed := a.changed
	a.mu.Unlock()
	if changed != nil {
		changed()
	}
	return nil
}

// onChange has f called whenever there is something new.
func (a *Access) onChange(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = f
}

// config is what belongs into a cluster Secret beside a token; nil: it is not
// known yet.
func (a *Access) config(token string) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cert == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"bearerToken":     token,
		"tlsClientConfig": map[string][]byte{"certData": a.cert, "keyData": a.key, "caData": a.ca},
	})
}

// isShared reports whether a certificate may be the one for all agents, whose name is
// nobody's. It is told by its subject, as it is renewed; as long as none is known,
// it may be any but those that the hub issues for one agent.
func (a *Access) isShared(cert *x509.Certificate) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subject == nil {
		return !slices.Contains(cert.Subject.OrganizationalUnit, pki.ProxyClientUnit)
	}
	return bytes.Equal(cert.RawSubject, a.subject)
}

// newToken names an agent: whoever shows it has read the agent's cluster Secret.
func newToken() (string, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(secret), nil
}

// clusterConfig fills in cluster Secrets: the token that is there stays.
func (a *Access) clusterConfig() ClusterConfig {
	if a == nil {
		return nil
	}
	return func(_ string, now []byte) ([]byte, error) {
		token := rawjson.Text(now, "bearerToken")
		if token == "" {
			var err error
			if token, err = newToken(); err != nil {
				return nil, err
			}
		}
		return a.config(token)
	}
}
