package cli

import (
	"maps"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// agentSelector selects agents by their labels: those of the Agent and those of its cluster Secret, which --label sets. It
// is evaluated here, because the API server selects only by labels of the Agent. It is the value of a flag.
type agentSelector struct{ selector labels.Selector }

func (s *agentSelector) addFlag(flags *pflag.FlagSet) {
	flags.VarP(s, "selector", "l", "Only agents whose labels match this `SELECTOR`. Labels of the cluster Secret count.")
}

func (s *agentSelector) Set(text string) (err error) {
	s.selector, err = labels.Parse(text)
	return err
}

func (s *agentSelector) String() string {
	if s.selector == nil {
		return ""
	}
	return s.selector.String()
}

func (*agentSelector) Type() string { return "string" }

// matches reports whether the agent is selected. Without a selector, all are.
func (s *agentSelector) matches(agent *v1alpha1.Agent) bool {
	all := labels.Set{}
	maps.Copy(all, agent.Labels)
	maps.Copy(all, agent.Spec.Cluster.Labels)
	return s.selector == nil || s.selector.Matches(all)
}
