package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// tokenLifetime is longer than any soak test.
const tokenLifetime = 30 * 24 * time.Hour

// install applies the manifests of a user's cluster: the CRDs and settings of Argo CD, our CRD, and the RBAC of
// principal or agent.
func (c *Cluster) install(ctx context.Context) error {
	if err := c.apply(ctx, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}")); err != nil {
		return err
	}
	for _, folder := range []string{"manifests/crds", "manifests/base/config"} {
		files, err := c.lab.Tools.Files("argocd", folder)
		if err != nil {
			return err
		}
		if err := c.applyFiles(ctx, files); err != nil {
			return err
		}
	}
	ours := "agentpolicies.yaml"
	if c.Spec.Role == model.Hub {
		ours = "agents.yaml"
	}
	if err := c.applyFiles(ctx, []string{filepath.Join(c.lab.Install, "crds", ours)}); err != nil {
		return err
	}
	if err := c.installIdentity(ctx); err != nil {
		return err
	}
	if err := c.waitForKinds(ctx); err != nil || c.Spec.Bare {
		return err
	}
	return c.apply(ctx, []byte(defaultProject))
}

// defaultProject is the AppProject that argocd-server creates. Spokes have no argocd-server, but a workload cluster of
// a user may have run a whole Argo CD.
const defaultProject = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: default
  namespace: argocd
spec:
  sourceRepos: ["*"]
  destinations: [{namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

// waitForKinds waits until discovery lists the kinds of Argo CD and the API server serves them. A controller that
// starts earlier waits for long before it retries.
func (c *Cluster) waitForKinds(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(c.admin)
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		one, err := client.ServerResourcesForGroupVersion("argoproj.io/v1alpha1")
		if err != nil {
			return err
		}
		_, all, err := client.ServerGroupsAndResources()
		if err != nil {
			return err
		}
		for _, kind := range []string{"Application", "AppProject", "ApplicationSet"} {
			if !lists([]*metav1.APIResourceList{one}, kind) || !lists(all, kind) {
				return fmt.Errorf("wait for Argo CD's kinds: %w", errNotReady)
			}
		}
		return nil
	})
}

func lists(all []*metav1.APIResourceList, kind string) bool {
	return slices.ContainsFunc(all, func(list *metav1.APIResourceList) bool {
		return list.GroupVersion == "argoproj.io/v1alpha1" &&
			slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
	})
}

func (c *Cluster) applyFiles(ctx context.Context, files []string) error {
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		all = fmt.Appendf(all, "---\n%s\n", content)
	}
	return c.apply(ctx, all)
}

// installIdentity applies the RBAC of the install manifests and writes a kubeconfig for its ServiceAccount. Permissions
// that are missing for users are also missing in tests.
func (c *Cluster) installIdentity(ctx context.Context) error {
	part := "agent"
	if c.Spec.Role == model.Hub {
		part = "principal"
	}
	file := filepath.Join(c.lab.Install, "kustomize", part, "rbac.yaml")
	manifests, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the RBAC of the %s: %w", part, err)
	}
	if part == "principal" { // an older release has no such file
		more, err := os.ReadFile(filepath.Join(filepath.Dir(file), "rbac-all-namespaces.yaml"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read the RBAC of the %s: %w", part, err)
		}
		manifests = fmt.Appendf(manifests, "\n---\n%s", more)
	}
	if err := c.apply(ctx, manifests); err != nil {
		return fmt.Errorf("apply %s: %w", file, err)
	}
	account, err := serviceAccountIn(manifests)
	if err != nil {
		return fmt.Errorf("find the ServiceAccount in %s: %w", file, err)
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	token, err := requestToken(ctx, client, model.ArgoCDNamespace, account)
	if err != nil {
		return err
	}
	c.State.RunAs = model.Kubeconfig{
		User: "system:serviceaccount:" + model.ArgoCDNamespace + ":" + account,
		File: c.path(part + ".kubeconfig"),
	}
	return c.writeTokenKubeconfig(c.State.RunAs.File, c.State.RunAs.User, model.ArgoCDNamespace, token)
}

func serviceAccountIn(manifests []byte) (string, error) {
	objects, err := decode(manifests)
	if err != nil {
		return "", err
	}
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" {
			return object.GetName(), nil
		}
	}
	return "", errors.New("there is none")
}

func requestToken(ctx context.Context, client kubernetes.Interface, namespace, account string) (string, error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token for %s/%s: %w", namespace, account, err)
	}
	return answer.Status.Token, nil
}

// allNodesReady reports whether every node is ready and has no not-ready taint.
func (c *Cluster) allNodesReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				ready++
			}
		}
	}
	if ready < c.Spec.Nodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, c.Spec.Nodes)
	}
	return nil
}
