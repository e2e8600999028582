package install

import (
	"embed"
	"fmt"
)

//go:embed kustomize/principal/rbac.yaml kustomize/agent/rbac.yaml
var rights embed.FS

// RBAC is the YAML stream of the roles that a program needs, principal or agent, without those of optional features: for
// programs that look whether an installation has them.
func RBAC(program string) ([]byte, error) {
	text, err := rights.ReadFile("kustomize/" + program + "/rbac.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the roles of %s: %w", program, err)
	}
	return text, nil
}
