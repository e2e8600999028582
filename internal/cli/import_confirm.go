package cli

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// leftover is an object of the existing argocd-agent that is no longer used.
type leftover struct {
	kind, name string
	resource   schema.GroupVersionResource
	clustered  bool
	uid        string
	version    string
}

var rbacVersion = rbacv1.SchemeGroupVersion

// leftovers returns the objects that only the existing program used. Services are not among them: they lead to our pods.
func (s *importSide) leftovers(ctx context.Context) ([]leftover, error) {
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	pod := &s.old.Spec.Template.Spec
	account := pod.ServiceAccountName
	candidates := []leftover{{kind: "Deployment", name: s.old.Name, resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}}
	for _, variable := range pod.Containers[0].Env {
		if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil && !slices.ContainsFunc(candidates, func(l leftover) bool { return l.name == from.ConfigMapKeyRef.Name }) {
			candidates = append(candidates, leftover{kind: "ConfigMap", name: from.ConfigMapKeyRef.Name, resource: core("configmaps")})
		}
	}
	secrets := []string{agentPassword}
	if s.role == rolePrincipal {
		candidates = append(candidates, leftover{kind: "ConfigMap", name: identityConfigMap, resource: core("configmaps")})
		secrets = []string{s.flag("jwt-secret-name", jwtSecret), hubPasswords}
		if err := s.clusterSecrets(ctx); err != nil {
			return nil, err
		}
		for i := range s.agents {
			secrets = append(secrets, backupName(s.agents[i].Name))
		}
	}
	for _, name := range secrets {
		candidates = append(candidates, leftover{kind: "Secret", name: name, resource: core("secrets")})
	}
	if ours := s.ours.Spec.Template.Spec.ServiceAccountName; account != "" && account != "default" && account != ours {
		rights, err := s.rights(ctx, account)
		if err != nil {
			return nil, err
		}
		candidates = append(append(candidates, leftover{kind: "ServiceAccount", name: account, resource: core("serviceaccounts")}), rights...)
	}
	var found []leftover
	for _, one := range candidates {
		object, err := s.at(one).Get(ctx, one.name, metav1.GetOptions{})
		if notFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s %s: %w", one.kind, one.name, s.explain(err))
		}
		one.uid, one.version = string(object.GetUID()), object.GetResourceVersion()
		found = append(found, one)
	}
	return found, nil
}

// rights returns the roles of a ServiceAccount whose bindings bind nothing else and have its name.
func (s *importSide) rights(ctx context.Context, account string) (all []leftover, err error) {
	add := func(kind string, subjects []rbacv1.Subject, role rbacv1.RoleRef, clustered bool) {
		own := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.namespace}
		if len(subjects) != 1 || subjects[0] != own || role.Name != account {
			return
		}
		plural := map[string]string{"Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
		for _, one := range []string{kind + "Binding", kind} {
			all = append(all, leftover{kind: one, name: account, resource: rbacVersion.WithResource(plural[one]), clustered: clustered})
		}
	}
	binding, err := s.kube.RbacV1().RoleBindings(s.namespace).Get(ctx, account, metav1.GetOptions{})
	if err == nil && binding.RoleRef.Kind == "Role" {
		add("Role", binding.Subjects, binding.RoleRef, false)
	}
	if err == nil || notFound(err) {
		var everywhere *rbacv1.ClusterRoleBinding
		if everywhere, err = s.kube.RbacV1().ClusterRoleBindings().Get(ctx, account, metav1.GetOptions{}); err == nil {
			add("ClusterRole", everywhere.Subjects, everywhere.RoleRef, true)
		}
	}
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("get the roles of ServiceAccount %s: %w", account, s.explain(err))
	}
	return all, nil
}

func (s *importSide) at(l leftover) dynamic.ResourceInterface {
	if l.clustered {
		return s.dynamic.Resource(l.resource)
	}
	return s.dynamic.Resource(l.resource).Namespace(s.namespace)
}

// remove deletes a leftover if it is unchanged since it was shown.
func (s *importSide) remove(ctx context.Context, l leftover) error {
	options := *metav1.NewPreconditionDeleteOptions(l.uid)
	options.Preconditions.ResourceVersion = &l.version
	if err := s.at(l).Delete(ctx, l.name, options); err != nil && !notFound(err) {
		return fmt.Errorf("delete %s %s: %w", l.kind, l.name, s.explain(err))
	}
	return nil
}
