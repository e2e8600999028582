package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/argocd-agent/argocd-agent/lab/gitserver"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// HTTPClient is a client for the hub's Argo CD API that is logged in. URLs begin with "https://" + l.ArgoCD.Address.
func (l *Lab) HTTPClient() (*http.Client, error) {
	pem, err := os.ReadFile(l.ArgoCD.CAFile)
	if err != nil {
		return nil, fmt.Errorf("trust argocd-server: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &http.Client{Transport: withToken{token: l.ArgoCD.Token, next: transport}}, nil
}

type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(request)
}

// Command returns a command of the lab's tools (kubectl, argocd, helm, kustomize) or of the machine, with the
// environment of the lab: kubectl has a context for each cluster, argocd is logged in.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if tool := filepath.Join(model.BinFolder(l.Dir()), name); isFile(tool) {
		name = tool
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), l.Environment()...)
	return command
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Repositories returns the store of the lab's Git server. Create repositories there and commit to them. Their URLs are
// RepoURL.
func (l *Lab) Repositories() (*gitserver.Store, error) { return gitserver.OpenStore(l.Git.Store) }

// RepoURL returns the URL of a repository on the lab's Git server.
func (l *Lab) RepoURL(name string) string { return l.Git.URL + "/" + name + ".git" }
