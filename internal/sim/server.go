package sim

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is argocd-server on the hub: what a click in the UI writes.

const serverName = "argocd-server"

// requestInfo names a sync request in an operation's info, so that what became of it is known whatever the product
// makes of it.
const requestInfo = "click"

// sync sets an operation, unless one is there.
func (w *world) sync(r kind.Ref) bool {
	o := w.hub.st.get(r)
	if o == nil || o.IsDeleting() || w.hub.down() {
		return false
	}
	if o.Get("operation") != nil {
		w.tracef("%s: sync %s: another operation is already in progress", serverName, short(r))
		return false
	}
	return w.startSync(serverName, r)
}

func (w *world) startSync(who string, r kind.Ref) bool {
	if w.hub.down() {
		return false
	}
	w.lastRequest++
	id := fmt.Sprintf("c%d", w.lastRequest)
	w.tracef("%s: sync %s is click %s", who, short(r), id)
	w.ledger.syncRequested(id, r, w.hub.st.get(r))
	return w.hub.edit(who, r, func(t tree) {
		t["operation"] = tree{"sync": tree{"revision": digText(t, "spec", "source", "targetRevision")},
			"initiatedBy": tree{"username": who}, "info": []any{tree{"name": requestInfo, "value": id}}}
		cut(t, "status", "operationState")
	})
}

// terminate needs an operation that has started.
func (w *world) terminate(r kind.Ref) bool {
	o := w.hub.st.get(r)
	if o == nil || o.Get("operation") == nil || o.Get("status", "operationState") == nil {
		return false
	}
	w.tracef("%s: terminate %s", serverName, short(r))
	w.ledger.askedToTerminate(decode(o))
	return w.hub.edit(serverName, r, func(t tree) {
		put(t, "Terminating", "status", "operationState", "phase")
	})
}

// refresh sets the annotations and leaves it to others to remove them.
func (w *world) refresh(r kind.Ref, how string) bool {
	return w.hub.edit(serverName, r, func(t tree) {
		put(t, how, "metadata", "annotations", refreshKey)
		put(t, "normal", "metadata", "annotations", hydrateKey)
	})
}

// deleteApplication deletes as the UI does, with or without the resources.
func (w *world) deleteApplication(c *cluster, who string, r kind.Ref, withResources bool) {
	o := c.st.get(r)
	if o == nil || c.down() {
		return
	}
	w.tracef("%s: delete %s, cascade %v", who, short(r), withResources)
	if !o.IsDeleting() {
		c.edit(who, r, func(t tree) {
			dropFinalizers(t, isCascade)
			if withResources {
				addFinalizer(t, cascade)
			}
		})
	}
	if c.spoke != nil {
		w.ledger.deletedBySpokeUser(c.st.get(r), withResources)
	}
	c.remove(who, r)
}

func infoOf(operation any, name string) string {
	for _, e := range digList(operation, "info") {
		if digText(e, "name") == name {
			return digText(e, "value")
		}
	}
	return ""
}
