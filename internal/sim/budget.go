package sim

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file counts what a process removes by absence: no item requested it. There is a limit without a confirmation.

// absence is what a process has removed of one scope of one agent.
type absence struct {
	at   map[string]engine.Time // by name of the object: when
	most int                    // objects that were there at a time within the window, at the most
	peak engine.Time            // when that was
}

// budgetWindow is for how long removals add up.
const budgetWindow = 10 * minute

// overBudget reports whether removing so many of so many objects by absence alone needs a confirmation.
func (w *world) overBudget(removed, of int) bool {
	count := w.shape.tuning.DeletionBudgetItems
	if count == 0 {
		count = 10
	}
	return removed > count && removed*100 > 20*of || 2*removed > of
}

// received notes which removals the owner asks for by an item.
func (p *process) received(agent string, m engine.Message) {
	d, ok := m.(engine.Delta)
	if !ok {
		return
	}
	for _, it := range d.Items {
		p.requested[agent+"/"+d.Scope+"/"+it.Key.Name] = it.Gone
	}
}

// reportedGone reports whether the owner asked for a removal. Copies on the hub have the name on the spoke at their
// end.
func (p *process) reportedGone(agent, scope, name string) bool {
	prefix := agent + "/" + scope + "/"
	if p.requested[prefix+name] {
		return true
	}
	if p.spoke == nil {
		for i := range len(name) {
			if (name[i] == '.' || name[i] == '-') && p.requested[prefix+strings.TrimLeft(name[i:], ".-")] {
				return true
			}
		}
	}
	return false
}

// decides records whether an item requested a removal that a process begins. What the owner sends later does not change
// that.
func (p *process) decides(e reconcile.Write) {
	agent := e.Agent
	if p.spoke != nil {
		agent = p.spoke.agent.Name
	}
	if isRemoval(e.Reason) && p.reportedGone(agent, e.Origin.Scope, e.Ref.Name) {
		p.asked[e.Ref] = true
	}
}

func isRemoval(why string) bool { return strings.HasPrefix(why, "remove ") }

// guardBudget counts a removal.
func (w *world) guardBudget(s *spoke, who actor, ch change, bad func(string)) {
	scope := scopeOf(ch.ref.Resource)
	if !isRemoval(who.why) || scope != kind.ApplicationScope && scope != kind.AppProjectScope {
		return
	}
	p, agent, c := who.proc, s.agent.Name, s.cluster
	if c != p.cluster {
		c = w.hub
	}
	a := p.absent[agent+"/"+scope]
	if a == nil {
		a = &absence{at: map[string]engine.Time{}}
		p.absent[agent+"/"+scope] = a
	}
	there := 0
	for _, o := range c.st.list(ch.ref.Resource) {
		if c.hub && o.Annotation(agentKey) == agent || !c.hub && ownedByAgent(o) {
			there++
		}
	}
	if ch.new == nil {
		there++ // it was there until now
	}
	key := ch.old.Annotation(sourceKey) + "@" + agent
	asked := p.asked[ch.ref]
	delete(p.asked, ch.ref)
	if there >= a.most || w.now-a.peak > budgetWindow {
		a.most, a.peak = there, w.now
	}
	if asked || w.ledger.agreed[key] || w.ledger.agreedCopy[ch.old.UID()] {
		return // it is no removal by absence, and those before it were judged when they happened
	}
	a.at[ch.ref.Namespace+"/"+ch.ref.Name] = w.now
	removed := 0
	for name, at := range a.at {
		if w.now-at > budgetWindow {
			delete(a.at, name)
		} else {
			removed++
		}
	}
	w.checks++
	if w.overBudget(removed, max(a.most, there+removed-1)) {
		bad("exceeds the deletion budget with")
	}
}
