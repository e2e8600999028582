package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
)

// StartArgoCDServer starts argocd-server of the hub with a certificate of the cluster's CA, and logs in.
func (c *Cluster) StartArgoCDServer(ctx context.Context, port int) (model.ArgoCD, error) {
	api := model.ArgoCD{CAFile: c.authority.CertFile(), Username: "admin", CLIFolder: c.path("argocd-cli")}
	taken, err := c.newPorts(2)
	if err != nil {
		return api, err
	}
	if port == 0 {
		port = taken[0]
	}
	api.Address = ports.Address(port)
	if err := c.configureArgoCDServer(ctx, api.Address); err != nil {
		return api, err
	}
	server, err := c.startProgram("argocd-server", c.lab.Tools.Binary("argocd"), "argocd-server", c.argocdEnv(),
		c.argocdArgs("--address=127.0.0.1", "--port="+strconv.Itoa(port),
			"--metrics-address=127.0.0.1", "--metrics-port="+strconv.Itoa(taken[1]),
			"--application-namespaces=*", "--dex-server=http://127.0.0.1:1")...)
	if err != nil {
		return api, err
	}
	if err := server.WaitReady(ctx, httpProbe("https://"+api.Address+"/healthz", api.CAFile)); err != nil {
		return api, err
	}
	return api, retry(ctx, func() error { return c.logIn(ctx, &api) })
}

// configureArgoCDServer sets the certificate and the settings of argocd-server for demo and tests.
func (c *Cluster) configureArgoCDServer(ctx context.Context, address string) error {
	pair, err := c.authority.Server("argocd-server", "argocd-server")
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(pair.Cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(pair.Key)
	if err != nil {
		return err
	}
	objects := []map[string]any{
		{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
			"metadata":   map[string]any{"name": "argocd-server-tls", "namespace": model.ArgoCDNamespace},
			"stringData": map[string]any{"tls.crt": string(cert), "tls.key": string(key)},
		},
		{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "argocd-cm", "namespace": model.ArgoCDNamespace, "labels": argocdLabels("argocd-cm")},
			"data": map[string]any{
				"url": "https://" + address, "exec.enabled": "true", "users.session.duration": "720h",
			},
		},
	}
	var manifests []byte
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		manifests = fmt.Appendf(manifests, "---\n%s", text)
	}
	return c.apply(ctx, manifests)
}

func argocdLabels(name string) map[string]any {
	return map[string]any{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "argocd"}
}

// logIn gets the initial password and an API token, and logs the CLI in.
func (c *Cluster) logIn(ctx context.Context, api *model.ArgoCD) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	secret, err := client.CoreV1().Secrets(model.ArgoCDNamespace).Get(ctx, "argocd-initial-admin-secret", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Argo CD's initial password: %w", err)
	}
	api.Password = string(secret.Data["password"])
	if api.Token, err = session(ctx, *api); err != nil {
		return err
	}
	return writeCLIConfig(*api)
}

// writeCLIConfig logs the argocd CLI in. It replaces `argocd login`, which trusts only the CAs of the system.
func writeCLIConfig(api model.ArgoCD) error {
	ca, err := os.ReadFile(api.CAFile)
	if err != nil {
		return err
	}
	config, err := yaml.Marshal(map[string]any{
		"current-context": "lab",
		"contexts":        []any{map[string]any{"name": "lab", "server": api.Address, "user": "lab"}},
		"users":           []any{map[string]any{"name": "lab", "auth-token": api.Token}},
		"servers": []any{map[string]any{
			"server": api.Address, "certificate-authority-data": base64.StdEncoding.EncodeToString(ca),
		}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(api.CLIFolder, 0o700); err != nil {
		return fmt.Errorf("create the directory of the argocd CLI: %w", err)
	}
	if err := os.WriteFile(filepath.Join(api.CLIFolder, "config"), config, 0o600); err != nil {
		return fmt.Errorf("log the argocd CLI in: %w", err)
	}
	return nil
}

// session requests a token from Argo CD.
func session(ctx context.Context, api model.ArgoCD) (string, error) {
	pem, err := os.ReadFile(api.CAFile)
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
	}
	body, err := json.Marshal(map[string]string{"username": api.Username, "password": api.Password})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+api.Address+"/api/v1/session", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("log in to Argo CD: %w", err)
	}
	defer answer.Body.Close()
	var result struct{ Token string }
	if err := json.NewDecoder(answer.Body).Decode(&result); err != nil {
		return "", fmt.Errorf("log in to Argo CD: %s: %w", answer.Status, err)
	}
	if result.Token == "" {
		return "", errors.New("log in to Argo CD: no token, " + answer.Status)
	}
	return result.Token, nil
}
