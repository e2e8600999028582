package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// InstallPrincipal creates a ServiceAccount with exactly the permissions that the chart gives a principal with these values,
// as for --set. It returns a kubeconfig with its token. The name is that of the ServiceAccount.
func (c *Cluster) InstallPrincipal(ctx context.Context, name string, values ...string) (file string, err error) {
	args := []string{"template", "argocd-agent", filepath.Join(c.lab.Spec.Install, "helm", "argocd-agent"), "--namespace", ArgoCDNamespace,
		"--kube-version", "1.35.0", "--set", "role=principal,fullnameOverride=" + name}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	rendered, err := exec.CommandContext(ctx, c.lab.Spec.Tools.Binary("helm"), args...).Output()
	if err != nil {
		return "", fmt.Errorf("render the chart of the principal: %w", err)
	}
	permissions, err := selectPermissions(string(rendered))
	if err != nil {
		return "", err
	}
	if err := c.Apply(ctx, permissions); err != nil {
		return "", err
	}
	return c.TokenKubeconfig(ctx, ArgoCDNamespace, name)
}

// selectPermissions returns the ServiceAccount, the roles and their bindings of a YAML stream.
func selectPermissions(stream string) (string, error) {
	var out strings.Builder
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		var object metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return "", fmt.Errorf("read the chart of the principal: %w", err)
		}
		switch object.Kind {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			out.WriteString("---\n" + document + "\n")
		}
	}
	return out.String(), nil
}

// TokenKubeconfig writes a kubeconfig with a token of a ServiceAccount, and returns its path.
func (c *Cluster) TokenKubeconfig(ctx context.Context, namespace, account string) (string, error) {
	seconds := int64((24 * time.Hour).Seconds())
	answer, err := c.Client().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token for %s/%s on %s: %w", namespace, account, c.Name, err)
	}
	config := api.NewConfig()
	config.Clusters[c.Name] = &api.Cluster{Server: c.Server, CertificateAuthority: c.CAFile}
	config.AuthInfos[account] = &api.AuthInfo{Token: answer.Status.Token}
	config.Contexts[c.Name] = &api.Context{Cluster: c.Name, AuthInfo: account, Namespace: namespace}
	config.CurrentContext = c.Name
	file := filepath.Join(filepath.Dir(c.Kubeconfig), namespace+"-"+account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return "", fmt.Errorf("write the kubeconfig %s: %w", file, err)
	}
	return file, nil
}

// WriteKubeconfig writes the administrators' access to clusters into one kubeconfig, by name of the context. Nothing listens
// at the address of the context "unreachable".
func WriteKubeconfig(file string, clusters map[string]*Cluster) error {
	all := api.NewConfig()
	for name, c := range clusters {
		one, err := clientcmd.LoadFromFile(c.Kubeconfig)
		if err != nil {
			return fmt.Errorf("read the kubeconfig of %s: %w", c.Name, err)
		}
		at := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[at.Cluster], one.AuthInfos[at.AuthInfo]
		all.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	all.Clusters[Unreachable] = &api.Cluster{Server: "https://127.0.0.1:1"}
	all.Contexts[Unreachable] = &api.Context{Cluster: Unreachable}
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", file, err)
	}
	return nil
}

// Unreachable is the context of a cluster that does not answer, see WriteKubeconfig.
const Unreachable = "unreachable"
