package agent

import (
	"strings"
	"testing"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

func TestLimitLive_StricterSideWins(t *testing.T) {
	all := v1alpha1.LiveAccess{Read: true, Write: true, Exec: true, Secrets: true}
	plain := resource.Policy{Secrets: resource.SecretsPlain}
	for _, c := range []struct {
		name     string
		settings resource.Policy
		access   v1alpha1.LiveAccess
		frozen   string
		want     [4]bool // reads, writes, exec, plain Secrets
		reason   string  // of refused writes
	}{
		{"no limit", plain, all, "", [4]bool{true, true, true, true}, ""},
		{"read only", plain, v1alpha1.LiveAccess{Read: true}, "", [4]bool{true, false, false, false}, "liveAccess.write"},
		{"nothing", plain, v1alpha1.LiveAccess{}, "", [4]bool{}, "liveAccess.write"},
		{"settings are stricter", resource.Policy{NoReads: true, NoWrites: true, NoExec: true}, all, "", [4]bool{}, ""},
		{"frozen", plain, all, "changes are frozen", [4]bool{true, false, false, true}, "changes are frozen"},
	} {
		got := limitLive(c.settings, c.access, c.frozen)
		if is := [4]bool{!got.NoReads, !got.NoWrites, !got.NoExec, got.Secrets == resource.SecretsPlain}; is != c.want {
			t.Errorf("%s: %v, want %v", c.name, is, c.want)
		}
		if reason := got.DisabledBy[resource.SettingWrites]; (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: reason %q, want %q", c.name, reason, c.reason)
		}
	}
}
