package product

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
)

// accessSecret has the client certificate of Argo CD for the resource proxy.
const accessSecret = "argocd-agent-resource-proxy-client"

// Live has the addresses of live access.
type Live struct {
	Resources string // host:port of the resource proxy, TLS
	Redis     string // host:port of the Redis proxy. Empty in a bare lab
}

// liveOfPrincipal prepares live access on the hub and returns the flags of the principal.
func (p *Product) liveOfPrincipal(ctx context.Context) ([]string, error) {
	password := p.lab.Hub().Redis.Password
	if p.lab.Hub().Redis.Address == "" { // a bare lab has no live access, see liveOfAgent
		return []string{"--enable-resource-proxy=false", "--redis-proxy-port", "0"}, nil
	}
	pair, err := p.pki.Server("resource-proxy")
	if err != nil {
		return nil, err
	}
	if err := p.storeAccess(ctx); err != nil {
		return nil, err
	}
	port, err := p.lab.Port(ctx)
	if err != nil {
		return nil, err
	}
	p.Live.Resources = "127.0.0.1:" + strconv.Itoa(port)
	flags := []string{
		"--resource-proxy-port", strconv.Itoa(port), "--resource-proxy-address", p.Live.Resources,
		"--resource-proxy-cert-path", pair.Cert, "--resource-proxy-key-path", pair.Key, "--resource-proxy-ca-path", p.pki.CertFile(),
		"--self-registration-client-cert-secret", accessSecret,
	}
	if port, err = p.lab.Port(ctx); err != nil {
		return nil, err
	}
	p.Live.Redis = "127.0.0.1:" + strconv.Itoa(port)
	redis, err := p.redis(p.lab.Hub())
	return append(flags, "--redis-proxy-port", strconv.Itoa(port), "--redis-server-address", redis, "--redis-password", password), err
}

// liveOfAgent returns the flags of an agent.
func (p *Product) liveOfAgent(c *lab.Cluster) ([]string, error) {
	if c.Redis.Address == "" {
		return []string{"--enable-resource-proxy=false"}, nil
	}
	redis, err := p.redis(c)
	return []string{"--redis-addr", redis, "--redis-password", c.Redis.Password}, err
}

// storeAccess stores a client certificate on the hub, for the cluster Secrets of the principal.
func (p *Product) storeAccess(ctx context.Context) error {
	pair, err := p.pki.Client("argocd-server")
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for key, file := range map[string]string{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": p.pki.CertFile()} {
		if data[key], err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read the client certificate of Argo CD: %w", err)
		}
	}
	secrets := p.lab.Hub().Client().CoreV1().Secrets(lab.ArgoCDNamespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: accessSecret}, Data: data}
	if _, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("store the client certificate of Argo CD: %w", err)
	}
	return nil
}

// ServeArgoCD configures the hub's argocd-server to use the Redis proxy of the principal, until Close.
func (p *Product) ServeArgoCD(ctx context.Context) error {
	if err := p.lab.Restart(ctx, "hub/argocd-server", lab.Flag("--redis", p.Live.Redis)); err != nil {
		return fmt.Errorf("point argocd-server at the Redis proxy: %w", err)
	}
	p.serves = true
	return nil
}

// Permissions grants an agent the permissions for live access, from the install manifests.
func GrantLiveAccess(ctx context.Context, c *lab.Cluster, install string) error {
	files, err := filepath.Glob(filepath.Join(install, "kustomize", "agent", "rbac-live-*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find the RBAC of live access in %s: %w", install, err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the rights of live access: %w", err)
		}
		if err := c.Apply(ctx, string(manifest)); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig writes a kubeconfig for an agent's cluster through the hub, and returns its path.
func (p *Product) Kubeconfig(agent string) (string, error) {
	folder := filepath.Join(p.folder, "through-hub")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("create a directory for a kubeconfig: %w", err)
	}
	authority, err := pki.LoadAuthority(p.pki.CertFile(), p.pki.KeyFile(), folder) // keep the certificate of the agent
	if err != nil {
		return "", err
	}
	pair, err := authority.ProxyClient(agent)
	if err != nil {
		return "", err
	}
	return writeKubeconfig(filepath.Join(folder, agent+".kubeconfig"), p.Live.Resources, agent, p.pki.CertFile(), pair)
}

func writeKubeconfig(file, address, agent, ca string, pair pki.Pair) (string, error) {
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: %[1]s,
clusters: [{name: %[1]s, cluster: {server: "https://%[2]s", certificate-authority: %[3]s}}],
users: [{name: %[1]s, user: {client-certificate: %[4]s, client-key: %[5]s}}],
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}]}
`, agent, address, ca, pair.Cert, pair.Key)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return file, nil
}
