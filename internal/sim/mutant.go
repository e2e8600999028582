package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// mutant breaks the product on purpose, where shell and Reconciler meet, so that a test can show that the simulator
// notices. The zero mutant breaks nothing.
type mutant struct {
	onSeen     func(*process, *kind.Object) *kind.Object
	onList     func(*process, []*kind.Object) []*kind.Object
	onWrite    func(*process, reconcile.Write) *kind.Object
	onSwallow  func(*process, reconcile.Write) bool
	onMessage  func(engine.Message) bool
	onRecall   func(*memory)
	onRegister func(*world, kind.Agent) kind.Agent
	onReport   func(*process, engine.Event)

	onReceive    func(*process, engine.Message) engine.Message
	staysInRole  bool // processes of a hub do not end when its role changes
	servesAlways bool // a standby serves agents
	takesLease   bool // a standby does not wait until the Lease expires

	preservesNothing bool // the ApplicationSet controller removes the annotations of a hub's Applications
}

func (m *mutant) seen(p *process, o *kind.Object) *kind.Object {
	if m.onSeen != nil {
		return m.onSeen(p, o)
	}
	return o
}

func (m *mutant) listed(p *process, list []*kind.Object) []*kind.Object {
	if m.onSeen != nil {
		for i := range list {
			list[i] = m.onSeen(p, list[i])
		}
	}
	if m.onList != nil {
		return m.onList(p, list)
	}
	return list
}

func (m *mutant) written(p *process, e reconcile.Write) *kind.Object {
	if m.onWrite != nil {
		return m.onWrite(p, e)
	}
	return e.Object
}

func (m *mutant) swallow(p *process, e reconcile.Write) bool {
	return m.onSwallow != nil && m.onSwallow(p, e)
}

func (m *mutant) received(p *process, msg engine.Message) engine.Message {
	if m.onReceive != nil {
		return m.onReceive(p, msg)
	}
	return msg
}

func (m *mutant) loses(msg engine.Message) bool { return m.onMessage != nil && m.onMessage(msg) }

func (m *mutant) recalled(lease memory) memory {
	if m.onRecall != nil {
		m.onRecall(&lease)
	}
	return lease
}

func (m *mutant) reported(p *process, f engine.Event) {
	if m.onReport != nil {
		m.onReport(p, f)
	}
}

func (m *mutant) registered(w *world, a kind.Agent) kind.Agent {
	if m.onRegister != nil {
		return m.onRegister(w, a)
	}
	return a
}
