package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// misplacedApplications looks for Applications in Argo CD's namespace, where people are used to put them, whose destination is an agent's
// cluster although nothing goes there from that namespace. Nobody looks after them, and so nobody else would say a word.
func (e *checkRun) misplacedApplications(ctx context.Context, hub *cluster, agents []v1alpha1.Agent, byDestination bool) {
	apps, err := hub.objects(ctx, kind.Applications, hub.namespace, "")
	if err != nil {
		e.unknown("applications", err)
		return
	}
	for i := range agents {
		agent := &agents[i]
		namespace, autonomous := cmp.Or(agent.Spec.Namespace, agent.Name), agent.Spec.Mode == string(kind.Autonomous)
		usual := map[bool]string{true: "destination", false: "namespace"}[byDestination]
		if namespace == hub.namespace || cmp.Or(agent.Spec.Mapping, usual) == "destination" && !autonomous {
			continue
		}
		var lost []string
		for _, app := range apps {
			if isFor(app, agent.Name) {
				lost = append(lost, app.Name())
			}
		}
		if len(lost) == 0 {
			continue
		}
		slices.Sort(lost)
		if more := len(lost) - 3; more > 0 {
			lost = append(lost[:3], fmt.Sprintf("and %d more", more))
		}
		remedy := "create them in namespace " + namespace + " (argocd app create --app-namespace " + namespace + "), or let the agent use destination mapping"
		if autonomous {
			remedy = "create them on the cluster itself: the agent is autonomous"
		}
		e.warning("applications", remedy, "nobody deploys what is in namespace %s for cluster %s: %s", hub.namespace, agent.Name, strings.Join(lost, ", "))
	}
}

// isFor reports whether an Application's destination is the cluster of an agent, by its name or by its address at the proxy.
func isFor(app *kind.Object, agent string) bool {
	destination := kind.DestinationOf(app)
	return destination == agent || strings.HasSuffix(destination, "?agentName="+agent)
}
