package reconcile

import (
	"bytes"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about source hydrators of managed agents. The hub sends credentials to push to an agent while an Application
// there needs them, and shows on an Application that it has none.

// pushChanged publishes credentials to push again for the agents of an Application, if it or its placement has changed.
func (n *Reconciler) pushChanged(was, is *kind.Object) {
	var projects []string
	for _, o := range []*kind.Object{was, is} {
		if o == nil {
			continue
		}
		if project := pushingProject(o); project != "" && !slices.Contains(projects, project) {
			projects = append(projects, project)
		}
	}
	if len(projects) == 0 || was != nil && is != nil && was != is && samePlacement(was, is) {
		return
	}
	for _, project := range projects {
		for _, secret := range slices.Clone(n.cache.writers[project]) {
			for _, l := range n.affectedByApplication(was, is) {
				l.notify(kind.Secrets, secret, secret, true)
			}
		}
	}
}

// samePlacement reports whether nothing has changed that decides where an Application runs and pushes to.
func samePlacement(a, b *kind.Object) bool {
	return a.IsDeleting() == b.IsDeleting() && bytes.Equal(a.Get("spec"), b.Get("spec")) && bytes.Equal(a.Get("metadata", "labels"), b.Get("metadata", "labels"))
}

// writerChanged updates the conditions of the Applications that push with a Secret.
func (n *Reconciler) writerChanged(was, is *kind.Object) {
	for _, secret := range []*kind.Object{was, is} {
		if secret == nil || writerProject(secret) == "" {
			continue
		}
		for _, app := range slices.Clone(n.cache.hydrated[writerProject(secret)]) {
			for _, l := range n.affectedByApplication(nil, app) {
				l.updateConditionsOf(app)
			}
		}
	}
}

// otherPusher returns another agent whose source hydrator pushes to the same branch as an Application, or "".
func (l *agentSync) otherPusher(o *kind.Object) string {
	for _, other := range l.reconciler.cache.branches[kind.PushedBranch(o)] {
		if other.Namespace() == o.Namespace() && kind.DestinationOf(other) == kind.DestinationOf(o) {
			continue // of the same agent
		}
		for _, s := range l.reconciler.affectedByApplication(nil, other) {
			if s == l || s.env.Agent.Mode != kind.Managed {
				continue
			}
			if _, placement, _ := kind.Place(other, &s.env); placement == kind.Placed {
				return s.name
			}
		}
	}
	return ""
}

// withHydrator returns the hub's Application with or without the condition that its source hydrator cannot work: it has no
// credentials to push, or another agent pushes to its branch. If that agent changes, the condition follows with the next
// change of this Application.
func (l *agentSync) withHydrator(o *kind.Object) *kind.Object {
	project := pushingProject(o)
	if project == "" || l.env.Agent.Mode != kind.Managed {
		return kind.ClearCondition(o, kind.ConditionHydrator)
	}
	at := time.UnixMilli(int64(l.reconciler.now))
	for _, secret := range l.reconciler.cache.writers[project] {
		if _, sent := l.publish(l.scope(kind.RepositoryScope), secret); !sent || !kind.PushesWith(o, secret) {
			continue
		}
		other := l.otherPusher(o)
		if other == "" {
			return kind.ClearCondition(o, kind.ConditionHydrator)
		}
		return kind.SetCondition(o, kind.ConditionHydrator, "The source hydrator of agent "+other+" pushes to the same branch. "+
			"Argo CD v3.3 and later then skip manifests of one of the two. Use another branch in spec.sourceHydrator.syncSource.targetBranch.", at)
	}
	message := "The source hydrator runs on the workload cluster, and the hub sends it no credentials to push. " +
		"Set --sync-write-credentials of the principal, or create a Secret of type repository-write on the workload cluster."
	if l.env.Settings.SyncWriteCredentials {
		message = "The source hydrator has no credentials to push. Create a Secret of type repository-write or repo-write-creds on the hub, " +
			"with project " + project + " and the URL of the repository."
	}
	return kind.SetCondition(o, kind.ConditionHydrator, message, at)
}
