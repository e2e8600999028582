package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// cascade deletes the replica of an Application that the hub deletes together with its resources.
//
// Only the replica of exactly that Application is deleted: the local object carries our ownership annotation, and the
// UID that it records is the one that the hub deletes. Any other object of that name stays, and the item is reported as
// gone.
//
// The local object comes from the cache and may be stale. Both writes are conditional on its resourceVersion, the
// deletion also on its UID. So an object that has changed is read again first.
type cascade struct {
	sync   *agentSync
	apply  engine.Apply
	stored *kind.Object // with the finalizers, as the API server stored it; nil if not written yet
}

// cascades reports whether an item deletes an Application with its resources.
func (l *agentSync) cascades(s *scope, e engine.Apply) bool {
	return l.reconciler.cfg.Side == kind.Spoke && s.cfg.Name == kind.ApplicationScope && kind.Deleting(e.Content)
}

func (c *cascade) wrote(o *kind.Object) { c.stored = o }

// decide writes the finalizers that the hub's Application has, if they differ, and then deletes. It does not write the
// spec: the deletion does not need it, and must not fail because a webhook rejects it.
func (c *cascade) decide(local *kind.Object) decision {
	if local == nil {
		return decision{gone: true}
	}
	ownership := kind.ReadOwnership(local, &c.sync.env)
	switch {
	case !ownership.Owned:
		return decision{gone: true}
	case c.apply.StoreUntrusted && !local.IsDeleting():
		return onHold
	case ownership.Source != kind.ContentUID(c.apply.Content):
		return decision{gone: true}
	}
	if fail := c.sync.refusedDeletion(kind.ApplicationScope, local); fail != nil {
		return decision{fail: fail}
	}
	merged, err := kind.MergeCascade(local, c.apply.Content, &c.sync.env)
	switch {
	case err != nil:
		return decision{fail: failure(err)}
	case !kind.Same(local, merged) && c.stored != nil && c.stored.ResourceVersion() == local.ResourceVersion():
		return decision{fail: &Failure{Code: engine.Invalid,
			Message: "the API server does not keep the finalizers that delete the resources; check its mutating webhooks"}}
	case !kind.Same(local, merged):
		return decision{verb: Update, object: merged, again: !local.IsDeleting()}
	case !local.IsDeleting():
		return decision{verb: Delete, object: local}
	}
	return decision{}
}
