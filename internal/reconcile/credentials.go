package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about Applications that were there before the credentials of
// their repository. Argo CD's controller finds out then that it has none, and
// does not look again for minutes: credentials that arrive are no reason for it.
// So the agent asks it to, once for each Application and arrival.

// recompareFor is how long after credentials have arrived an Application that
// cannot be compared is taken for one that lacked them: a comparison that began
// without them takes its time to fail.
const recompareFor = 60 * engine.Second

// arrivals is what a spoke knows of credentials that have come of late.
type arrivals struct {
	at    map[string]engine.Time   // by project; empty: for all of them
	asked map[kind.Ref]engine.Time // Applications: for which arrival
}

// credentialsArrived notes that credentials were written here.
func (n *Reconciler) credentialsArrived(secret *kind.Object) {
	if n.cfg.Side != kind.Spoke || !n.cache.tables[kind.Secrets].complete || !(kind.RepositoryKind{}).Matches(secret) {
		return
	}
	project := kind.RepositoryProject(secret)
	n.credentialArrivals.at[project] = n.now
	for _, o := range sortedObjects(n.cache.tables[kind.Applications].objects) {
		if project == "" || kind.ProjectOf(o) == project {
			n.refreshAfterCredentials(o)
		}
	}
}

// refreshAfterCredentials has an Application compared again if it could not be, and its
// credentials have come meanwhile.
func (n *Reconciler) refreshAfterCredentials(o *kind.Object) {
	if len(n.credentialArrivals.at) == 0 {
		return
	}
	at := max(n.credentialArrivals.at[kind.ProjectOf(o)], n.credentialArrivals.at[""])
	ref := refOf(kind.Applications, o)
	if at == 0 || n.now-at > recompareFor || n.credentialArrivals.asked[ref] >= at || !n.recomparable(o) {
		return
	}
	n.credentialArrivals.asked[ref] = at
	n.enqueue(ref, job{name: "recompare", why: "its credentials have come", decide: func(local *kind.Object) decision {
		if local == nil || !n.recomparable(local) {
			return decision{}
		}
		return decision{verb: Update, object: kind.WithRefresh(local)}
	}})
}

// recomparable reports whether an Application is ours, and waits for a comparison
// that nobody has asked for.
func (n *Reconciler) recomparable(o *kind.Object) bool {
	return kind.HasComparisonError(o) && !kind.RefreshPending(o) && !o.IsDeleting() && kind.ReadOwnership(o, &n.syncs[""].env).Owned
}

// forgetArrivals drops what is too long ago to matter.
func (n *Reconciler) forgetArrivals() {
	for project, at := range n.credentialArrivals.at {
		if n.now-at > recompareFor {
			delete(n.credentialArrivals.at, project)
		}
	}
	if len(n.credentialArrivals.at) == 0 {
		clear(n.credentialArrivals.asked)
	}
}
