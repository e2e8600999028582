package cli

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestAgentSelector_MatchesLabelsOfAgentAndOfClusterSecret(t *testing.T) {
	agent := &v1alpha1.Agent{Spec: v1alpha1.Spec{Cluster: v1alpha1.ClusterSecret{Labels: map[string]string{"env": "prod"}}}}
	agent.Labels = map[string]string{"env": "old", "team": "web"}
	for text, want := range map[string]bool{
		"": true, "env=prod": true, "env=prod,team=web": true, "env in (prod,test)": true, "!region": true,
		"env=old": false, "env=prod,team=api": false, "env!=prod": false, "region": false,
	} {
		var s agentSelector
		if err := s.Set(text); err != nil {
			t.Fatal(err)
		}
		if got := s.matches(agent); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	var unset, invalid agentSelector
	if !unset.matches(agent) || invalid.Set("env in prod") == nil {
		t.Error("without a selector, an agent is not selected, or an invalid selector is accepted")
	}
}
