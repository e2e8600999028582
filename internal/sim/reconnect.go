package sim

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// checkReconnect cuts every connection, changes a little, and counts the bytes until all is equal again: they grow with
// what has changed, not with what is there.
func (w *world) checkReconnect() {
	if len(w.violations) > 0 {
		return
	}
	w.cutAll()
	changed, size := 0, 0
	for i, r := range ownHubApps(w) {
		o := w.hub.st.get(r)
		if i%7 == int(w.seed%7) && changed < 3 && o.Label("appset") == "" && !isInvalidPath(unquote(o.Get("spec", "source", "path"))) {
			w.editSpec(w.hub, r, 7)
			changed++
			size += len(o.Raw())
		}
	}
	refused := w.refusals()
	messages, bytes, foreign := w.messages, w.bytes, w.foreign
	limit := w.now + 5*minute
	var found []string
	for len(w.violations) == 0 && w.now < limit {
		w.run(w.now + 5*second)
		if found = w.differences(); len(found) == 0 && w.allInSync() {
			break
		}
	}
	if len(w.violations) > 0 {
		return
	}
	if len(found) > 0 {
		w.violate("after a reconnect the two sides do not become equal:\n  %s", strings.Join(found, "\n  "))
		return
	}
	// For each agent the handshakes, the roots, and the way down the digests. For each change its content, and the
	// statuses and operations that follow. What a replica rejects is sent once per session. Argo CD does not rest:
	// whatever it writes may be replicated and answered.
	most := len(w.spokes)*8_000 + changed*8_000 + 12*size + refused*3_000 + (w.foreign-foreign)*1_000
	if w.shape.statusSize > 0 { // a status that was cut is written once more, for another replica to learn so
		most += 2 * w.shape.objectLimit * len(w.hub.st.list(kind.Applications))
	}
	w.check(w.bytes-bytes <= most, "a reconnect with %d changes took %d bytes in %d messages, more than %d",
		changed, w.bytes-bytes, w.messages-messages, most)
}

// cutAll cuts every connection. Both ends notice it after 10 ms.
func (w *world) cutAll() {
	for _, c := range w.liveConns() {
		c.broken = true
		c.agent.p.in(c.agent.life, 10, c.agent.lost)
		c.hub.p.in(c.hub.life, 10, c.hub.lost)
	}
}

// refusals counts the items that spokes refuse.
func (w *world) refusals() int {
	n := 0
	for _, p := range w.principals {
		for _, s := range w.spokes {
			st, _ := p.reconciler.Status(s.agent.Name)
			for _, scope := range st.Scopes {
				n += scope.Rejected
			}
		}
	}
	return n
}

// allInSync reports whether every agent has compared everything in its session.
func (w *world) allInSync() bool {
	for _, s := range w.spokes {
		st, _ := s.process.reconciler.Status("")
		if !st.Connected {
			return false
		}
		for _, scope := range st.Scopes {
			if scope.Role == engine.Owner && scope.InSyncAt == 0 && !scope.Unshared && scope.Name != "command" {
				return false
			}
		}
	}
	return true
}
