package sim

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is what operators of the hub do to Agents: they suspend, retire and delete them, and change what is
// declared for them.

var registrationActions = []actionType{
	{name: "suspend agent", weight: 4, fault: true, rare: 8, do: suspendAgent},
	{name: "retire agent", weight: 4, fault: true, rare: 6, do: retireAgent},
	{name: "delete agent", weight: 4, fault: true, rare: 6, do: deleteAgent},
	{name: "change namespace", weight: 3, fault: true, rare: 6, do: changeNamespace},
	{name: "change mapping", weight: 3, fault: true, rare: 5, do: changeMapping},
	{name: "change mode", weight: 3, fault: true, rare: 5, do: changeMode},
}

// refuse refuses an agent, or accepts it again. Every principal learns of it in its own time.
func (w *world) refuse(s *spoke, refused bool) {
	s.refused = refused
	if !refused {
		return
	}
	for _, p := range w.principals {
		w.afterWatch(p, func() {
			for _, id := range sortedIDs(p.conns) {
				if e := p.conns[id]; e.c.spoke.agent.Name == s.agent.Name && s.refused {
					e.refuse()
				}
			}
		})
	}
}

// afterWatch lets a principal that is up hear of a change of an Agent.
func (w *world) afterWatch(p *process, run func()) {
	if p.up {
		p.later(p.cluster.watchLag(), run)
	}
}

// admits reports whether a principal lets an agent in: it knows of it, and not that it is to be kept out.
func (p *process) admits(agent string) bool {
	_, known := p.reconciler.Status(agent)
	s := p.w.spokeOf(agent)
	return known && (s == nil || !s.refused)
}

// refuse ends a connection from the hub, whatever the state of the Reconciler.
func (e *end) refuse() {
	e.c.w.tracef("%s: turns %s away", e.p.name, e.c.agent.p.name)
	e.close(0)
	e.p.step(reconcile.FromPeer{Agent: e.agentName(), Input: engine.Disconnected{Session: e.session}})
}

func suspendAgent(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	w.tracef("%s: suspends %s", userName, s.agent.Name)
	w.refuse(s, true)
	w.after(span(a.n[1]), func() { w.refuse(s, false) })
}

// retireAgent says that an agent's cluster is gone for good, and takes that back.
func retireAgent(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if s.retired {
		return
	}
	w.tracef("%s: retires %s", userName, s.agent.Name)
	s.retired = true
	w.refuse(s, true)
	w.after(second, func() { w.release(s) })
	w.after(2*span(a.n[1]), func() { w.unretire(s) })
}

func (w *world) unretire(s *spoke) {
	if s.retired {
		w.tracef("%s: %s is no longer retired", userName, s.agent.Name)
		s.retired = false
		w.refuse(s, false)
	}
}

// release is a principal that removes finalizers of deleted Applications that wait for a retired agent. It is not part
// of the Reconciler.
func (w *world) release(s *spoke) {
	if !s.retired {
		return
	}
	w.after(5*second, func() { w.release(s) })
	for _, p := range w.principals {
		if !p.up || w.hub.down() {
			continue
		}
		for _, o := range w.hub.st.list(kind.Applications) {
			if place, ok := p.reconciler.Place(o.Namespace(), o.Name()); !ok || place.Agent != s.agent.Name || !o.IsDeleting() {
				continue
			}
			w.hub.edit(p.name+" (releaser)", refOf(kind.Applications, o), func(t tree) { dropFinalizers(t, isArgoFinalizer) })
		}
	}
}

// deleteAgent deletes an Agent, which revokes its certificate, and lets it join again after a while.
func deleteAgent(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if s.deleted {
		return
	}
	w.tracef("%s: deletes the Agent %s", userName, s.agent.Name)
	s.deleted = true
	w.refuse(s, true)
	for _, p := range s.clones { // their certificate is revoked as well
		p.crash()
		p.retired = true
	}
	_, _ = w.hub.st.delete(actor{what: userName}, ref(registrations, w.hub.argo, s.agent.Name), "", "")
	delete(w.ledger.clusters, s.agent.Name)
	for _, p := range w.principals {
		w.afterWatch(p, func() {
			if s.deleted {
				p.step(reconcile.Unregister{Agent: s.agent.Name})
			}
		})
	}
	w.after(span(a.n[1]), func() { w.rejoin(s) })
}

func (w *world) rejoin(s *spoke) {
	if !s.deleted {
		return
	}
	w.tracef("%s: %s joins again", userName, s.agent.Name)
	s.deleted = false
	w.refuse(s, s.retired)
	w.reregister(s)
}

// reregister has every principal read an agent's registration again.
func (w *world) reregister(s *spoke) {
	for _, p := range w.principals {
		w.afterWatch(p, func() { p.register(s) })
	}
}

// changeNamespace gives an agent another namespace on the hub. What is in the old one no longer belongs to it.
func changeNamespace(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.managed() {
		return // copies in the old namespace stay there
	}
	name := []string{s.agent.Name, "ns-" + s.agent.Name, "other-" + s.agent.Name}[a.n[1]%3]
	w.tracef("%s: %s has namespace %s", userName, s.agent.Name, name)
	s.agent.HubNamespace = name
	w.ledger.reconsider()
	w.reregister(s)
}

// changeMapping has an agent map its Applications the other way. Both sides have to agree on it, so the agent starts
// again.
func changeMapping(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.managed() || w.shape.mapping != kind.ByDestination || s.cluster.argo != w.hub.argo {
		return // the hub's settings know only its own namespaces
	}
	if s.agent.Mapping == kind.ByDestination {
		s.agent.Mapping = kind.ByNamespace
	} else {
		s.agent.Mapping = kind.ByDestination
	}
	w.tracef("%s: %s is mapped by %s", userName, s.agent.Name, s.agent.Mapping)
	w.ledger.reconsider()
	w.reregister(s)
	s.process.restartIn(w.between(second, 10*second))
}

// unseen is how long agents have to come to rest of which the two sides are not compared.
func (w *world) unseen() engine.Time {
	if slices.ContainsFunc(w.spokes, func(s *spoke) bool { return s.modeChanged }) {
		return 5 * minute
	}
	if w.group != nil {
		return resolved + minute
	}
	return 0
}

// changeMode makes the other side the owner of an agent's Applications. No user gives up anything by that. But replicas
// from an earlier time in that mode, which the new owner lacks, may be removed.
func changeMode(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if s.managed() {
		s.agent.Mode = kind.Autonomous
	} else {
		s.agent.Mode = kind.Managed
	}
	s.modeChanged = true
	w.tracef("%s: %s is %s", userName, s.agent.Name, s.agent.Mode)
	w.ledger.recount(w.hub)
	w.ledger.recount(s.cluster)
	w.ledger.accept(s)
	for _, k := range w.ledger.syncRequests {
		k.excused = true
	}
	w.refuse(s, true)
	w.reregister(s)
	for _, p := range append(s.clones, s.process) {
		p.crash()
	}
	w.after(w.between(second, 10*second), func() {
		w.refuse(s, s.retired || s.deleted)
		s.process.start()
	})
}
