package fleet

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestFacts_OnlyValidLabelsAreRecorded(t *testing.T) {
	long := strings.Repeat("x", 64)
	got := factsOf([]engine.Fact{{Key: "region", Value: "eu"}, {Key: "a b", Value: "x"}, {Key: "note", Value: "not a label"}, {Key: "long", Value: long}, {Key: "empty"}}, nil, nil)
	if want := []v1alpha1.Fact{{Key: "empty"}, {Key: "region", Value: "eu"}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := factsOf(nil, []v1alpha1.Fact{{Key: "region", Value: "eu"}}, nil); got != nil {
		t.Errorf("a fact that is neither reported nor allowed stays: %v", got)
	}
}

// A missing label makes ApplicationSets delete Applications. So a fact that the agent fails to report keeps its value.
func TestFacts_AllowedFactKeepsLastValue(t *testing.T) {
	allowed := []string{"region", "zone"}
	last := []v1alpha1.Fact{{Key: "region", Value: "eu"}, {Key: "zone", Value: "a"}, {Key: "other", Value: "x"}}
	got := factsOf([]engine.Fact{{Key: "zone", Value: "b"}}, last, allowed)
	if want := []v1alpha1.Fact{{Key: "region", Value: "eu"}, {Key: "zone", Value: "b"}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestFacts_BecomeLabelsOnlyIfAllowed(t *testing.T) {
	rec := agentRecord{Agent: agent("a", 1, "managed", func(a *v1alpha1.Agent) {
		a.Spec.Cluster.Facts = []string{"region", "tier", "unknown", "kept", AgentLabel, "argocd.argoproj.io/secret-type"}
		a.Spec.Cluster.Labels = map[string]string{"tier": "prod"}
		a.Status.Facts = []v1alpha1.Fact{{Key: "region", Value: "eu"}, {Key: "tier", Value: "test"}, {Key: "secret", Value: "x"}, {Key: AgentLabel, Value: "b"},
			{Key: "argocd.argoproj.io/secret-type", Value: "repository"}}
	})}
	current := map[string]string{"kept": "as it is", "region": "us", "theirs": "1"}
	got := newDesiredSecret(rec, current, "https://proxy?agentName=a", true).Labels
	want := map[string]string{"region": "eu", "tier": "prod", "kept": "as it is", AgentLabel: "a", "argocd.argoproj.io/secret-type": "cluster"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
