package agent

import (
	"strings"
	"testing"
	"time"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

func TestLimitLive_StricterSideWins(t *testing.T) {
	all := &v1alpha1.LiveAccess{Read: true, Write: true, Exec: true, Secrets: true}
	plain := resource.Policy{Secrets: resource.SecretsPlain}
	for _, c := range []struct {
		name     string
		settings resource.Policy
		access   *v1alpha1.LiveAccess
		frozen   string
		want     [4]bool // reads, writes, exec, plain Secrets
		reason   string  // of refused writes
	}{
		{"no limit", plain, all, "", [4]bool{true, true, true, true}, ""},
		{"read only", plain, &v1alpha1.LiveAccess{Read: true}, "", [4]bool{true, false, false, false}, "liveAccess.write"},
		{"nothing", plain, &v1alpha1.LiveAccess{}, "", [4]bool{}, "liveAccess.write"},
		{"settings are stricter", resource.Policy{NoReads: true, NoWrites: true, NoExec: true}, all, "", [4]bool{}, ""},
		{"invalid", plain, nil, "AgentPolicy x cannot be read", [4]bool{}, "AgentPolicy x cannot be read"},
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

// The API server checks AgentPolicies against their CRD. An older CRD may let one through that this release cannot decode.
func TestDecidePolicies_InvalidOneRefusesEverything(t *testing.T) {
	env := policy.Env{Mode: kind.Managed, ArgoNamespace: "argocd", AgentNamespace: "argocd"}
	decode := func(spec string) readPolicy {
		o, err := kind.Parse([]byte(`{"metadata":{"name":"limits","namespace":"argocd"},"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return decodePolicy(o)
	}
	now := time.Unix(0, 0)
	valid := decidePolicies(env, []readPolicy{decode(`{"projects":["a"]}`)}, now)
	if valid.invalid != nil || valid.changed.Policy == nil || valid.changed.Frozen != "" || valid.live == nil {
		t.Fatalf("a valid AgentPolicy: %+v", valid)
	}
	for name, spec := range map[string]string{"a field of another type": `{"projects":"a"}`, "an unknown adoption": `{"adoption":"sometimes"}`} {
		d := decidePolicies(env, []readPolicy{decode(spec)}, now)
		if d.invalid == nil || d.changed.Policy != nil || d.live != nil {
			t.Errorf("%s: %+v", name, d)
		}
		if !strings.Contains(d.changed.Frozen, "AgentPolicy limits: ") || strings.Contains(d.changed.Frozen, "unreadable") {
			t.Errorf("%s: reason %q", name, d.changed.Frozen)
		}
		if d.changed.ID == valid.changed.ID {
			t.Errorf("%s: the decision does not count as changed", name)
		}
	}
}
