package product

import (
	"path/filepath"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// A failed drill keeps only what Save copies.
func TestPrograms_LogWhereTheLabSaves(t *testing.T) {
	folder := t.TempDir()
	p := &Product{lab: &lab.Lab{State: model.State{Spec: model.Spec{Folder: folder}}}}
	if got := filepath.Dir(p.logFile("principal")); got != model.LogFolder(folder) {
		t.Errorf("the log of the principal is in %s", got)
	}
}
