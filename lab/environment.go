package lab

import (
	"os"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// Environment returns the environment of a shell for the lab: kubectl with a context per cluster, the argocd CLI logged
// in.
func (l *Lab) Environment() []string {
	return []string{
		"PATH=" + model.BinFolder(l.Dir()) + ":" + os.Getenv("PATH"),
		"KUBECONFIG=" + model.Kubeconfigs(l.Dir()),
		"ARGOCD_CONFIG_DIR=" + l.ArgoCD.CLIFolder,
		DirVariable + "=" + l.Dir(),
	}
}
