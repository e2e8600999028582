package reconcile

import (
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file refreshes Applications that arrived before the credentials of their repository. Argo CD's controller then
// fails to compare them and does not retry for minutes, because new credentials do not trigger it. So the agent
// requests a refresh, once per Application and arrival.

// recompareFor is how long after credentials arrived a comparison error is taken for missing credentials: a comparison
// that began without them takes time to fail.
const recompareFor = 60 * engine.Second

// arrivals is what a spoke knows of credentials that arrived recently.
type arrivals struct {
	at    map[string]engine.Time   // by project; "" stands for all
	asked map[kind.Ref]engine.Time // Applications that were refreshed, by arrival
}

// credentialsArrived records that credentials were written.
func (n *Reconciler) credentialsArrived(secret *kind.Object) {
	if n.cfg.Side != kind.Spoke || !n.cache.tables[kind.Secrets].parts.complete() || !(kind.RepositoryKind{}).Matches(secret) {
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

// refreshAfterCredentials refreshes an Application with a comparison error whose credentials have arrived.
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
	n.enqueue(ref, job{name: "recompare", why: "refresh after credentials arrived", decide: ifChanged(func(local *kind.Object) *kind.Object {
		if !n.recomparable(local) {
			return local
		}
		return kind.WithRefresh(local)
	})})
}

// recomparable reports whether an Application is ours, has a comparison error, and no refresh is pending.
func (n *Reconciler) recomparable(o *kind.Object) bool {
	return kind.HasComparisonError(o) && !kind.RefreshPending(o) && !o.IsDeleting() && kind.ReadOwnership(o, &n.syncs[""].env).Owned
}

// forgetArrivals drops old arrivals.
func (n *Reconciler) forgetArrivals() {
	maps.DeleteFunc(n.credentialArrivals.at, func(_ string, at engine.Time) bool { return n.now-at > recompareFor })
	if len(n.credentialArrivals.at) == 0 {
		clear(n.credentialArrivals.asked)
	}
}
