package install

import (
	"embed"
	"fmt"
)

//go:embed kustomize/principal/rbac.yaml kustomize/principal/rbac-all-namespaces.yaml kustomize/principal/rbac-namespaced.yaml kustomize/agent/rbac.yaml
var rbacFiles embed.FS

// RBAC returns a YAML stream with the required roles of a component, principal or agent, without those of optional
// features. Use it to check an installation.
func RBAC(component string) ([]byte, error) {
	text, err := rbacFile(component, "rbac.yaml")
	if err != nil || component != "principal" {
		return text, err
	}
	more, err := rbacFile(component, "rbac-all-namespaces.yaml")
	return append(append(text, "\n---\n"...), more...), err
}

// NamespacedRBAC returns the required roles of a principal with --namespaced: those in its own namespace and in the whole
// cluster, and those in each namespace of Applications.
func NamespacedRBAC() (own, namespace []byte, err error) {
	if own, err = rbacFile("principal", "rbac.yaml"); err != nil {
		return nil, nil, err
	}
	namespace, err = rbacFile("principal", "rbac-namespaced.yaml")
	return own, namespace, err
}

func rbacFile(component, name string) ([]byte, error) {
	text, err := rbacFiles.ReadFile("kustomize/" + component + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("read roles of %s: %w", component, err)
	}
	return text, nil
}
