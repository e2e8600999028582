package policy

import (
	"fmt"
	"slices"
	"strings"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Admission returns a ValidatingAdmissionPolicy and its binding for the API server of a workload cluster. They limit what
// service accounts of Argo CD's application controller can create, change and delete, also if the hub finds a way around
// the agent. An account is namespace/name.
//
// The controller's own work stays possible: it updates Applications without changing their spec, records events, and
// stores its shards.
func Admission(env Env, list []v1alpha1.AgentPolicy, accounts []string) ([]map[string]any, error) {
	p, err := Compile(env, list)
	if err != nil {
		return nil, err
	}
	users := make([]string, 0, len(accounts))
	for _, account := range accounts {
		namespace, name, err := splitAccount(account)
		if err != nil {
			return nil, err
		}
		users = append(users, "system:serviceaccount:"+namespace+":"+name)
	}
	var validations []any
	add := func(expression, message string) {
		validations = append(validations, map[string]any{"expression": "variables.own || " + expression, "message": message})
	}
	for _, c := range p.policies {
		by := "the default policy of argocd-agent"
		if c.name != "" {
			by = "AgentPolicy " + c.name
		}
		if c.spec.DestinationNamespaces != nil {
			add(`variables.targetNamespace == "" || `+matchesAny("variables.targetNamespace", c.spec.DestinationNamespaces), by+" (destinationNamespaces): the namespace is not allowed")
		}
		for _, ns := range p.protected(&c, []byte(`{}`)) {
			expression := "!" + matchesAny("variables.targetNamespace", []string{ns})
			if ns == env.ArgoNamespace && len(c.spec.ArgoCDKinds) > 0 {
				expression += fmt.Sprintf(` || request.kind.group == "argoproj.io" && request.kind.kind in %s`, celStrings(c.spec.ArgoCDKinds))
			}
			add(expression, by+" (protectedNamespaces): namespace "+ns+" is protected")
		}
		if c.spec.NamespacedKinds != nil {
			add("!variables.namespaced || "+matchesKind(c.spec.NamespacedKinds), by+" (namespacedKinds): the kind is not allowed")
		}
		if c.spec.ClusterKinds != nil {
			add("variables.namespaced || "+matchesKind(c.spec.ClusterKinds), by+" (clusterKinds): the kind is not allowed")
		}
	}
	const name = "argocd-agent-policy"
	own := []string{
		`request.kind.group == "argoproj.io" && request.kind.kind == "Application" && request.operation == "UPDATE" && object.spec == oldObject.spec`,
		`request.kind.group in ["", "events.k8s.io"] && request.kind.kind == "Event"`,
		fmt.Sprintf(`request.kind.kind == "ConfigMap" && variables.targetNamespace == %q && request.name == "argocd-app-controller-shard-cm"`, env.ArgoNamespace),
	}
	labels := map[string]any{"app.kubernetes.io/part-of": "argocd-agent"}
	return []map[string]any{
		{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
			"metadata": map[string]any{"name": name, "labels": labels},
			"spec": map[string]any{
				"failurePolicy": "Fail",
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
					"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*/*"}, "operations": []any{"CREATE", "UPDATE", "DELETE"},
				}}},
				"matchConditions": []any{map[string]any{"name": "application-controller", "expression": "request.userInfo.username in " + celStrings(users)}},
				"variables": []any{
					// A request for a cluster-scoped object has no namespace. The namespace of a request for a Namespace is that
					// Namespace, so the rules for namespaces also hold for it.
					map[string]any{"name": "targetNamespace", "expression": `has(request.namespace) ? request.namespace : ""`},
					map[string]any{"name": "namespaced", "expression": `variables.targetNamespace != "" && !(request.kind.group == "" && request.kind.kind == "Namespace")`},
					map[string]any{"name": "own", "expression": "(" + strings.Join(own, ") || (") + ")"},
				},
				"validations": validations,
			},
		},
		{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": name, "labels": labels},
			"spec":     map[string]any{"policyName": name, "validationActions": []any{"Deny"}},
		},
	}, nil
}

func splitAccount(account string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok || namespace == "" || name == "" {
		return "", "", fmt.Errorf("service account %q: use NAMESPACE/NAME", account)
	}
	return namespace, name, nil
}

// matchesAny is a CEL expression that is true if a string matches one of the globs.
func matchesAny(value string, globs []string) string {
	if len(globs) == 0 {
		return "false"
	}
	parts := make([]string, 0, len(globs))
	for _, glob := range globs {
		if isLiteral(glob) {
			parts = append(parts, fmt.Sprintf("%s == %q", value, glob))
		} else {
			parts = append(parts, fmt.Sprintf("%s.matches(%q)", value, kind.GlobExpression(glob)))
		}
	}
	return "(" + strings.Join(parts, " || ") + ")"
}

func matchesKind(kinds []v1alpha1.GroupKind) string {
	if len(kinds) == 0 {
		return "false"
	}
	parts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		parts = append(parts, matchesAny("request.kind.group", []string{k.Group})+" && "+matchesAny("request.kind.kind", []string{k.Kind}))
	}
	return "((" + strings.Join(parts, ") || (") + "))"
}

func celStrings(list []string) string {
	quoted := make([]string, 0, len(list))
	for _, s := range slices.Sorted(slices.Values(list)) {
		quoted = append(quoted, fmt.Sprintf("%q", s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
