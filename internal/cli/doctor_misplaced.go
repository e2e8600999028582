package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// misplacedApplications finds Applications in the Argo CD namespace whose destination is a workload cluster, although
// that namespace is not synced to the agent.
func (e *checkRun) misplacedApplications(ctx context.Context, hub *cluster, agents []v1alpha1.Agent, byDestination bool) {
	apps, err := hub.objects(ctx, kind.Applications, hub.namespace, "")
	if err != nil {
		e.skipped("applications", err)
		return
	}
	for i := range agents {
		agent := &agents[i]
		namespace, autonomous := agentrows.HubNamespace(agent), agent.Spec.Mode == string(kind.Autonomous)
		standard := map[bool]string{true: "destination", false: "namespace"}[byDestination]
		if namespace == hub.namespace || cmp.Or(agent.Spec.Mapping, standard) == "destination" && !autonomous {
			continue
		}
		var names []string
		for _, app := range apps {
			if isFor(app, agent.Name) {
				names = append(names, app.Name())
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		if more := len(names) - 3; more > 0 {
			names = append(names[:3], fmt.Sprintf("and %d more", more))
		}
		remedy := "create them in namespace " + namespace + " (argocd app create --app-namespace " + namespace + "), or use destination mapping for the agent"
		if autonomous {
			remedy = "create them on the workload cluster, because the agent is autonomous"
		}
		e.warning("applications", remedy, "Applications in namespace %s target cluster %s but are not synced to any agent: %s", hub.namespace, agent.Name, strings.Join(names, ", "))
	}
}

// isFor reports whether the destination of an Application is the cluster of an agent, by name or by server URL.
func isFor(app *kind.Object, agent string) bool {
	destination := kind.DestinationOf(app)
	return destination == agent || strings.HasSuffix(destination, "?agentName="+agent)
}
