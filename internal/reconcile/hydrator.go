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

// withHydrator returns the hub's Application with or without the condition that it has no credentials to push.
func (l *agentSync) withHydrator(o *kind.Object) *kind.Object {
	project := pushingProject(o)
	if project == "" || l.env.Agent.Mode != kind.Managed {
		return kind.ClearCondition(o, kind.ConditionHydrator)
	}
	for _, secret := range l.reconciler.cache.writers[project] {
		if _, sent := l.publish(l.scope(kind.RepositoryScope), secret); sent && kind.PushesWith(o, secret) {
			return kind.ClearCondition(o, kind.ConditionHydrator)
		}
	}
	message := "The source hydrator runs on the workload cluster, and the hub sends it no credentials to push. " +
		"Set --sync-write-credentials of the principal, or create a Secret of type repository-write on the workload cluster."
	if l.env.Settings.SyncWriteCredentials {
		message = "The source hydrator has no credentials to push. Create a Secret of type repository-write or repo-write-creds on the hub, " +
			"with project " + project + " and the URL of the repository."
	}
	return kind.SetCondition(o, kind.ConditionHydrator, message, time.UnixMilli(int64(l.reconciler.now)))
}
