package policy

import (
	"strings"
	"testing"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestUpgrade_IsAllowedOnlyByPolicy(t *testing.T) {
	const repo, digest = "registry.example.com/argocd-agent", "sha256:aa"
	limit := func(u v1alpha1.UpgradePolicy) v1alpha1.PolicySpec { return v1alpha1.PolicySpec{Upgrade: &u} }
	open := limit(v1alpha1.UpgradePolicy{Repository: repo})
	for name, c := range map[string]struct {
		policies []v1alpha1.PolicySpec
		request  Upgrade
		rule     string // that forbids it; empty: allowed
	}{
		"without AgentPolicies":            {nil, Upgrade{Repository: repo, Version: "v2"}, "upgrade"},
		"without the field":                {[]v1alpha1.PolicySpec{{Adoption: "never"}}, Upgrade{Repository: repo, Version: "v2"}, "upgrade"},
		"the repository":                   {[]v1alpha1.PolicySpec{open}, Upgrade{Repository: repo, Version: "v2"}, ""},
		"a policy without the field":       {[]v1alpha1.PolicySpec{{}, open}, Upgrade{Repository: repo, Version: "v2"}, ""},
		"another repository":               {[]v1alpha1.PolicySpec{open}, Upgrade{Repository: repo + "-evil", Version: "v2"}, "upgrade.repository"},
		"another repository of one policy": {[]v1alpha1.PolicySpec{open, limit(v1alpha1.UpgradePolicy{Repository: "other"})}, Upgrade{Repository: repo, Version: "v2"}, "upgrade.repository"},
		"an older version":                 {[]v1alpha1.PolicySpec{open}, Upgrade{Repository: repo, Version: "v1", Older: true}, "upgrade.downgrade"},
		"an older version, allowed":        {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Downgrade: true})}, Upgrade{Repository: repo, Version: "v1", Older: true}, ""},
		"a listed version":                 {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Versions: []string{"v2.*"}})}, Upgrade{Repository: repo, Version: "v2.1"}, ""},
		"another version":                  {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Versions: []string{"v2.*"}})}, Upgrade{Repository: repo, Version: "v3.0"}, "upgrade.versions"},
		"no version":                       {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Versions: []string{}})}, Upgrade{Repository: repo, Version: "v3.0"}, "upgrade.versions"},
		"a digest, maybe of an older one":  {[]v1alpha1.PolicySpec{open}, Upgrade{Repository: repo, Version: "v2", Digest: digest}, "upgrade.digests"},
		"a digest, any version allowed":    {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Downgrade: true})}, Upgrade{Repository: repo, Version: "v2", Digest: digest}, ""},
		"a digest for a listed version":    {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Versions: []string{"v2"}})}, Upgrade{Repository: repo, Version: "v2", Digest: digest}, "upgrade.digests"},
		"a listed digest":                  {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Versions: []string{"v2"}, Digests: []string{digest}})}, Upgrade{Repository: repo, Version: "v2", Digest: digest}, ""},
		"another digest":                   {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Digests: []string{digest}})}, Upgrade{Repository: repo, Version: "v2", Digest: "sha256:bb"}, "upgrade.digests"},
		"no digest":                        {[]v1alpha1.PolicySpec{limit(v1alpha1.UpgradePolicy{Repository: repo, Digests: []string{digest}})}, Upgrade{Repository: repo, Version: "v2"}, "upgrade.digests"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compile(t, managed, c.policies...).Upgrade(c.request)
			if c.rule == "" && got != nil || c.rule != "" && (got == nil || got.Rule != c.rule) {
				t.Errorf("got %v, want rule %q", got, c.rule)
			}
		})
	}
}

func TestUpgrade_PatternsAreChecked(t *testing.T) {
	_, err := Compile(managed, []v1alpha1.AgentPolicy{{Spec: v1alpha1.PolicySpec{Upgrade: &v1alpha1.UpgradePolicy{Repository: "r", Versions: []string{"!v1"}}}}})
	if err == nil || !strings.Contains(err.Error(), "upgrade.versions") {
		t.Errorf("got %v", err)
	}
}
