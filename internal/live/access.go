package live

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Access is the client certificate with which Argo CD authenticates to the resource proxy. All cluster Secrets share it. Each
// Secret adds its own token, which identifies the agent. Access implements fleet.ClusterConfig.
type Access struct {
	mu            sync.Mutex
	cert, key, ca []byte
	subject       []byte        // of the certificate, encoded
	changed       chan struct{} // closed after a change
}

// Load reads the certificate from the data of a Secret.
func (a *Access) Load(data map[string][]byte) error {
	if data == nil {
		return errors.New("Secret not found")
	}
	for _, part := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if len(data[part]) == 0 {
			return fmt.Errorf("%s is missing", part)
		}
	}
	certs, err := pki.Certificates(data["tls.crt"])
	if err != nil {
		return fmt.Errorf("tls.crt: %w", err)
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

// Changed implements fleet.ClusterConfig.
func (a *Access) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// config returns the config of a cluster Secret with this token. It is nil until a certificate is loaded.
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

// isShared reports whether cert can be the shared certificate. The subject decides, because the certificate is renewed. Until
// one is loaded, every certificate counts, except those that the hub issues for one agent.
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

func newToken() (string, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(secret), nil
}

// ClusterConfig implements fleet.ClusterConfig. It keeps the token of the current config.
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
