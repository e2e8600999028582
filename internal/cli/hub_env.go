package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// hubEnv returns the Env with which the principal reads objects for an agent.
func (c *cluster) hubEnv(ctx context.Context, agent *v1alpha1.Agent) (*kind.Env, error) {
	set, err := c.principalSettings(ctx)
	if err != nil {
		return nil, err
	}
	mapping := kind.ByNamespace
	if set.on("destination-based-mapping") {
		mapping = kind.ByDestination
	}
	hub, err := c.readHub(ctx)
	if err != nil {
		return nil, err
	}
	argo, err := c.argoSettings(ctx)
	if err != nil {
		return nil, err
	}
	w := &kind.Env{
		Side: kind.Hub, HubArgoNamespace: c.namespace, PrincipalUID: hub.state.Identity, Projection: engine.ProjectionMax, InstanceLabel: argo["application.instanceLabelKey"],
		Agent: kind.Agent{Name: agent.Name, Mode: kind.Mode(agent.Spec.Mode), Mapping: cmp.Or(kind.Mapping(agent.Spec.Mapping), mapping), HubNamespace: agentrows.HubNamespace(agent),
			Children: agent.Spec.ChildApplications == v1alpha1.ChildApplicationsReadOnly && agent.Spec.Mode == string(kind.Managed)},
		Settings: kind.Settings{AllowedNamespaces: commaList(set.get("allowed-namespaces")), ShareUnscopedRepositories: set.on("share-unscoped-repositories"),
			SyncRepositoryTrust: set.on("sync-repository-trust"), SyncArgoSettings: set.on("sync-argocd-settings"),
			SyncWriteCredentials: set.on("sync-write-credentials")},
	}
	if w.GlobalProjects, err = kube.GlobalProjects(argo["globalProjects"]); err != nil {
		return nil, fmt.Errorf("decode ConfigMap argocd-cm: %w", err)
	}
	if w.Settings.LabelSelector, err = set.labelSelector(); err != nil {
		return nil, err
	}
	if secret, err := c.kube.CoreV1().Secrets(c.namespace).Get(ctx, "cluster-"+agent.Name, metav1.GetOptions{}); err == nil {
		w.Agent.Server, w.Agent.Project = string(secret.Data["server"]), string(secret.Data["project"])
	}
	projects, err := c.objects(ctx, kind.AppProjects, c.namespace, "")
	if err != nil {
		return nil, err
	}
	w.Find = finder(map[kind.Resource][]*kind.Object{kind.AppProjects: projects})
	return w, nil
}

func finder(objects map[kind.Resource][]*kind.Object) func(kind.Ref) *kind.Object {
	return func(ref kind.Ref) *kind.Object {
		for _, o := range objects[ref.Resource] {
			if o.Namespace() == ref.Namespace && o.Name() == ref.Name {
				return o
			}
		}
		return nil
	}
}

// uid returns the UID of namespace kube-system, which identifies a cluster.
func (c *cluster) uid(ctx context.Context) (string, error) {
	system, err := c.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get namespace kube-system: %w", c.explain(err))
	}
	return string(system.UID), nil
}

func (c *cluster) argoSettings(ctx context.Context) (map[string]string, error) {
	return c.configMap(ctx, "argocd-cm")
}

func (c *cluster) configMap(ctx context.Context, name string) (map[string]string, error) {
	found, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", name, c.explain(err))
	}
	return found.Data, nil
}

func commaList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// objects lists a resource in one namespace. If namespace is empty, in all namespaces.
func (c *cluster) objects(ctx context.Context, r kind.Resource, namespace, selector string) ([]*kind.Object, error) {
	all, err := c.raw.List(ctx, kube.Watch{Resource: r, Namespace: namespace, Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", r.Plural, c, c.explain(err))
	}
	return all, nil
}

// applicationNamespace returns the namespace of an agent's Applications on the hub. If empty, all namespaces.
func applicationNamespace(w *kind.Env) string {
	if w.Agent.Mode == kind.Managed && w.Agent.Mapping == kind.ByDestination {
		return ""
	}
	return w.Agent.HubNamespace
}
