package install

import (
	"embed"
	"fmt"
)

//go:embed kustomize/principal/rbac.yaml kustomize/agent/rbac.yaml
var rbacFiles embed.FS

// RBAC returns a YAML stream with the required roles of a component, principal or agent, without those of optional
// features. Use it to check an installation.
func RBAC(component string) ([]byte, error) {
	text, err := rbacFiles.ReadFile("kustomize/" + component + "/rbac.yaml")
	if err != nil {
		return nil, fmt.Errorf("read roles of %s: %w", component, err)
	}
	return text, nil
}
