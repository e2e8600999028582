package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what an API server refuses our processes for a while: a verb that their role lacks, or a deletion that a
// webhook denies.

var denialActions = []actionType{
	{name: "missing RBAC", weight: 4, fault: true, rare: 10, do: missingRBAC},
	{name: "webhook denies deletes", weight: 4, fault: true, rare: 10, do: webhookDenies},
}

// denial is one verb on one resource.
type denial struct {
	verb     string // as in RBAC; a watch goes on, a new one begins with a list
	resource kind.Resource
	until    engine.Time
	message  string
}

func missingRBAC(w *world, a action) {
	c := w.pickCluster(a.n[0])
	verb := []string{"create", "update", "delete", "get", "list"}[a.n[1]%5]
	resource := []kind.Resource{kind.Applications, kind.Applications, kind.AppProjects, kind.Secrets, kind.ConfigMaps}[a.n[2]%5]
	w.tracef("%s: our role cannot %s %s", c.name, verb, resource.Plural)
	c.denials = append(c.denials, denial{verb, resource, w.now + span(a.n[3]), "no role grants " + verb})
}

func webhookDenies(w *world, a action) {
	c := w.pickCluster(a.n[0])
	resource := []kind.Resource{kind.Applications, kind.Applications, kind.AppProjects}[a.n[1]%3]
	w.tracef("%s: a webhook denies the deletion of %s", c.name, resource.Plural)
	c.denials = append(c.denials, denial{"delete", resource, w.now + span(a.n[2]), "admission webhook denied the request"})
}

// denied returns the refusal of a request of ours; nil: it is permitted.
func (c *cluster) denied(verb string, resource kind.Resource) *apiError {
	for _, d := range c.denials {
		if d.verb == verb && d.resource == resource && c.w.now < d.until {
			return &apiError{"Forbidden", resource.Plural + " is forbidden: " + d.message}
		}
	}
	return nil
}
