package sim

import (
	"slices"

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
