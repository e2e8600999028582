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
	subject       []byte        // of the certificate, as it is encoded
	changed       chan struct{} // closed after a change
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
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	a.mu.Unlock()
	return nil
}

// Changed implements ClusterConfig.
func (a *Access) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// config is what belongs into a cluster Secret beside a token; nil: it is not
// known yet.
func (a *Access) config(token string) ([]byte, error) {
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

// ClusterConfig implements the interface ClusterConfig. It keeps the token of the current config.
func (a *Access) ClusterConfig(_ string, current []byte) ([]byte, error) {
	token := rawjson.Text(current, "bearerToken")
	if token == "" {
		var err error
		if token, err = newToken(); err != nil {
			return nil, err
		}
	}
	return a.config(token)
}
