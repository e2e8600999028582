package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestModeChange_NeedsAgentInSync(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Agent)
		want   string
	}{
		{"in sync", func(*v1alpha1.Agent) {}, ""},
		{"never connected", func(a *v1alpha1.Agent) { a.Status = v1alpha1.Status{} }, ""},
		{"disconnected", func(a *v1alpha1.Agent) { a.Status.Connected = false }, "not connected"},
		{"different", func(a *v1alpha1.Agent) { a.Status.Diverged = 2 }, "2 items differ"},
		{"not acknowledged", func(a *v1alpha1.Agent) { a.Status.OldestUnacked = &now }, "not acknowledged"},
		{"never in sync", func(a *v1alpha1.Agent) { a.Status.LastConfirmed = nil }, "not in sync"},
		{"with children", func(a *v1alpha1.Agent) { a.Spec.ChildApplications = v1alpha1.ChildApplicationsReadOnly }, "--child-applications None"},
	} {
		agent := &v1alpha1.Agent{Status: v1alpha1.Status{ClusterUID: "c", Connected: true, LastConfirmed: &now}}
		c.change(agent)
		err := checkModeChange(agent)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
