package agent

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/policy"
)

// An upgrade is confirmed by the digests of all scopes, not by the connection.
func TestProvenInSync_NeedsEveryScope(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*engine.Status)
		want   bool
	}{
		"in sync":           {nil, true},
		"disconnected":      {func(s *engine.Status) { s.Connected = false }, false},
		"no scopes":         {func(s *engine.Status) { s.Scopes = nil }, false},
		"not compared":      {func(s *engine.Status) { s.Scopes[0].InSyncAt = 0 }, false},
		"rejected item":     {func(s *engine.Status) { s.Scopes[0].Rejected = 1 }, false},
		"diverged item":     {func(s *engine.Status) { s.Scopes[0].Diverged = 1 }, false},
		"held deletion":     {func(s *engine.Status) { s.Scopes[0].Held = 1 }, false},
		"untrusted store":   {func(s *engine.Status) { s.StoreHoldID = "x" }, false},
		"unshared scope":    {func(s *engine.Status) { s.Scopes[1].InSyncAt, s.Scopes[1].Unshared = 0, true }, true},
		"commands are sent": {func(s *engine.Status) { s.Scopes[2].InFlight = 1 }, true},
	} {
		s := engine.Status{Connected: true, Scopes: []engine.ScopeStatus{{Name: kind.ApplicationScope, InSyncAt: 1}, {Name: kind.StatusScope, InSyncAt: 1}, {Name: kind.CommandScope}}}
		if c.change != nil {
			c.change(&s)
		}
		if got := provenInSync(s); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAllowsUpgrade_FollowsPolicies(t *testing.T) {
	request := &policy.Upgrade{Repository: "r", Version: "v2"}
	upgrade := &v1alpha1.UpgradePolicy{Repository: "r"}
	for name, c := range map[string]struct {
		specs  []v1alpha1.PolicySpec
		reason string // if empty, it is allowed
	}{
		"allowed":      {[]v1alpha1.PolicySpec{{Upgrade: upgrade}}, ""},
		"default":      {nil, "no AgentPolicy has spec.upgrade"},
		"frozen":       {[]v1alpha1.PolicySpec{{Upgrade: upgrade, Freeze: &v1alpha1.Freeze{Until: metav1.NewTime(time.Unix(1000, 0))}}}, "frozen"},
		"invalid":      {[]v1alpha1.PolicySpec{{Upgrade: upgrade, Adoption: "x"}}, "spec.adoption"},
		"another repo": {[]v1alpha1.PolicySpec{{Upgrade: &v1alpha1.UpgradePolicy{Repository: "other"}}}, "only other is allowed"},
	} {
		p := newPolicies(nil)
		if err := p.allowsUpgrade(request); err == nil {
			t.Errorf("%s: allowed before AgentPolicies are read", name)
		}
		var list []readPolicy
		for _, spec := range c.specs {
			list = append(list, readPolicy{AgentPolicy: v1alpha1.AgentPolicy{Spec: spec}})
		}
		d := decidePolicies(policy.Env{Mode: kind.Managed}, list, time.Unix(0, 0))
		p.decided.Store(&d)
		err := p.allowsUpgrade(request)
		if c.reason == "" && err != nil || c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: %v", name, err)
		}
		if anyone := p.allowsUpgrade(nil); name != "another repo" && (anyone == nil) != (err == nil) {
			t.Errorf("%s: any upgrade: %v", name, anyone)
		}
	}
}
