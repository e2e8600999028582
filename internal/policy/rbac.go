package policy

import (
	"errors"
	"maps"
	"slices"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// APIResource is a resource that the API server of a workload cluster serves.
type APIResource struct {
	Group      string
	Plural     string
	Kind       string
	Namespaced bool
}

// RBAC returns a service account with the rights that AgentPolicies allow, and with no other. Argo CD impersonates it if an
// AppProject names it in destinationServiceAccounts. RBAC has no patterns for names, so it covers the namespaces and
// resources that exist now.
func RBAC(env Env, list []v1alpha1.AgentPolicy, account string, namespaces []string, resources []APIResource) ([]map[string]any, error) {
	p, err := Compile(env, list)
	if err != nil {
		return nil, err
	}
	accountNamespace, accountName, err := splitAccount(account)
	if err != nil {
		return nil, err
	}
	name := "argocd-agent-" + accountName
	meta := func(namespace, name string) map[string]any {
		m := map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/part-of": "argocd-agent"}}
		if namespace != "" {
			m["namespace"] = namespace
		}
		return m
	}
	const group = "rbac.authorization.k8s.io"
	binding := func(kind, namespace, role string) map[string]any {
		return map[string]any{
			"apiVersion": group + "/v1", "kind": kind, "metadata": meta(namespace, role),
			"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": role},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": accountNamespace, "name": accountName}},
		}
	}
	out := []map[string]any{{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(accountNamespace, accountName)}}
	addRole := func(role string, namespaced bool) bool {
		rules := p.rules(resources, namespaced)
		if len(rules) > 0 {
			out = append(out, map[string]any{"apiVersion": group + "/v1", "kind": "ClusterRole", "metadata": meta("", role), "rules": rules})
		}
		return len(rules) > 0
	}
	if addRole(name, true) {
		for _, ns := range slices.Sorted(slices.Values(namespaces)) {
			if p.allowsNamespace(ns) {
				out = append(out, binding("RoleBinding", ns, name))
			}
		}
	}
	if addRole(name+"-cluster", false) {
		out = append(out, binding("ClusterRoleBinding", "", name+"-cluster"))
	}
	if len(out) == 1 {
		return nil, errors.New("the AgentPolicies allow no kind that the workload cluster serves")
	}
	return out, nil
}

// allowsNamespace reports whether everything that is allowed can be deployed to a namespace.
func (p *Policy) allowsNamespace(namespace string) bool {
	return !slices.ContainsFunc(p.policies, func(c compiled) bool {
		return !allows(c.spec.DestinationNamespaces, namespace) || p.protects(&c, namespace, []byte(`{}`))
	})
}

// rules returns the RBAC rules for the resources whose kinds all policies allow. Verbs that hand out rights are not among
// them.
func (p *Policy) rules(resources []APIResource, namespaced bool) []any {
	byGroup := map[string][]string{}
	for _, r := range resources {
		if r.Namespaced == namespaced && p.allowsKind(r) && !slices.Contains(byGroup[r.Group], r.Plural) {
			byGroup[r.Group] = append(byGroup[r.Group], r.Plural)
		}
	}
	var out []any
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		out = append(out, map[string]any{"apiGroups": []any{group}, "resources": anyOf(slices.Sorted(slices.Values(byGroup[group]))),
			"verbs": anyOf([]string{"create", "delete", "get", "list", "patch", "update", "watch"})})
	}
	return out
}

func (p *Policy) allowsKind(r APIResource) bool {
	return !slices.ContainsFunc(p.policies, func(c compiled) bool {
		list := c.spec.ClusterKinds
		if r.Namespaced {
			list = c.spec.NamespacedKinds
		}
		return list != nil && !slices.ContainsFunc(list, func(k v1alpha1.GroupKind) bool {
			return allows([]string{k.Group}, r.Group) && allows([]string{k.Kind}, r.Kind)
		})
	})
}

func anyOf(list []string) []any {
	out := make([]any, 0, len(list))
	for _, s := range list {
		out = append(out, s)
	}
	return out
}
