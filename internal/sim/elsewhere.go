package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is principal replicas that do not keep the content of Applications while another replica has the session of
// their agent.

// announceElsewhere lets every principal know, now and then, which agents are elsewhere. While things break, it also
// names agents that are not: what the Reconciler does must be right in any case.
func (w *world) announceElsewhere() {
	w.after(engine.Time(2+w.elsewhere.IntN(20))*second, w.announceElsewhere)
	for _, p := range w.principals {
		if p.up && w.now >= p.pausedUntil {
			p.announceElsewhere()
		}
	}
}

func (p *process) announceElsewhere() {
	agents := map[string]bool{}
	for _, s := range p.w.spokes {
		wrong := p.w.faulty && p.w.elsewhere.IntN(100) < 40
		agents[s.agent.Name] = wrong || p.superseded(s.agent.Name, engine.Epoch{})
	}
	p.step(reconcile.Elsewhere{Agents: agents})
}

// checkElsewhere cuts every connection of an idle world and lets users delete an Application of each managed agent while it is
// elsewhere for all principals. The principal to which an agent then connects has seen that: nothing is held.
func (w *world) checkElsewhere() {
	if !w.shape.elsewhere || len(w.violations) > 0 {
		return
	}
	w.cutAll()
	w.run(w.now + 20)
	agents := map[string]bool{}
	for _, s := range w.spokes {
		agents[s.agent.Name] = true
	}
	for _, p := range w.principals {
		if p.up {
			p.step(reconcile.Elsewhere{Agents: agents})
		}
	}
	known := maps.Clone(w.shown)
	for _, s := range w.spokes {
		for _, r := range ownHubApps(w) {
			if o := w.hub.st.get(r); s.managed() && w.sentTo(s, r, o) && o.Label("appset") == "" && !o.IsDeleting() {
				w.deleteApplication(w.hub, userName, r, false)
				break
			}
		}
	}
	limit := w.now + 5*minute
	for len(w.violations) == 0 && w.now < limit && (len(w.differences()) > 0 || !w.allInSync()) {
		w.run(w.now + 5*second)
	}
	for id, held := range w.shown {
		w.check(known[id] != nil || held.Scope != kind.ApplicationScope, "what a user deleted while its agent was elsewhere is held: %s", held.Reason)
	}
	if found := w.differences(); len(found) > 0 {
		w.violate("after agents were elsewhere the two sides do not become equal:\n  %s", strings.Join(found, "\n  "))
	}
}

// readApplications executes a ReadApplications of the Reconciler. The answer can be late.
func (p *process) readApplications(e reconcile.ReadApplications) {
	var objects []*kind.Object
	p.ask(func() (*kind.Object, *apiError) {
		if err := p.cluster.denied("list", kind.Applications); err != nil {
			return nil, err
		}
		objects = slices.DeleteFunc(p.cluster.st.list(kind.Applications), func(o *kind.Object) bool { return o.Namespace() != e.Namespace })
		return nil, nil
	}, func(_ *kind.Object, err *apiError) {
		in := reconcile.ApplicationsRead{Namespace: e.Namespace, Objects: objects}
		if err != nil {
			in.Objects, in.Reason = nil, err.message
		}
		late := engine.Time(0)
		if w := p.w; w.faulty && w.elsewhere.IntN(3) == 0 {
			late = engine.Time(w.elsewhere.IntN(30)) * second
		}
		p.later(late, func() { p.step(in) })
	})
}

// guardReduced checks that nothing is sent to an agent, and nothing is written, that was decided without the content of
// an Application.
func (p *process) guardReduced(e reconcile.Effect) {
	switch e := e.(type) {
	case reconcile.Write:
		if e.Object.IsReduced() {
			p.w.violate("%s writes %s without its content", p.name, short(e.Ref))
		}
	case reconcile.ToPeer:
		send, ok := e.Effect.(engine.Send)
		if !ok || p.spoke != nil {
			return
		}
		if _, refused := send.Message.(engine.Bye); !refused && p.reconciler.Reduced(e.Agent) > 0 {
			p.w.violate("%s sends %T to %s without the content of its Applications", p.name, send.Message, e.Agent)
		}
	}
}
