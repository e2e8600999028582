package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file enforces on a spoke what its cluster allows the hub. The hub's objects are rejected or narrowed. What is
// already on the cluster stays as it is: a policy deletes nothing.

// SpokePolicy is what a workload cluster allows its hub. Objects are passed as they would be written. An error says which
// rule forbids it.
type SpokePolicy interface {
	Application(o *kind.Object) error
	// Project returns an AppProject with only what is allowed.
	Project(o *kind.Object) (*kind.Object, error)
	// Exceeds returns which rule an AppProject of the workload cluster is wider than, or nil.
	Exceeds(project *kind.Object) error
	Operation(app *kind.Object, operation []byte) error
	// NeverAdopts reports whether objects that the agent did not create stay as they are.
	NeverAdopts() bool
	// DeletionBudget returns how many Applications the hub can delete in which time. If limited is false, there is no
	// limit.
	DeletionBudget() (limit int, window engine.Time, limited bool)
}

// spokePolicy is the current policy of a spoke.
type spokePolicy struct {
	PolicyChanged
	deletions []Deletion // Applications deleted for the hub within the window; at most its limit
	read      bool       // there was a PolicyChanged
}

// policyChanged replaces the policy. The session ends, so that everything is compared and decided again with the new
// policy: what was rejected is requested again, and what the old policy allowed and is not written yet is not written.
func (n *Reconciler) policyChanged(in PolicyChanged) {
	n.policy.read = true
	if n.cfg.Side != kind.Spoke || n.policy.ID == in.ID && n.policy.Frozen == in.Frozen {
		return
	}
	n.policy.PolicyChanged = in
	l := n.syncs[""]
	for i := range l.scopes {
		s := &l.scopes[i]
		if l.known && s.cfg.Role == engine.Replica && s.cfg.Style == engine.Mirror {
			for _, o := range l.objects(s.kind.Resource()) {
				if own := s.own(o); own != nil {
					l.reportStored(s, own, own)
				}
			}
		}
	}
	if session, ok := l.peer.Session(); ok {
		n.emit(ToPeer{Effect: engine.CloseSession{Session: session, Code: engine.ShuttingDown, Message: "the policy of the workload cluster has changed"}})
	}
}

func (p *spokePolicy) refusesOperation(app *kind.Object, operation []byte) error {
	switch {
	case p.Frozen != "":
		return errors.New(p.Frozen)
	case p.Policy == nil:
		return nil
	}
	return p.Policy.Operation(app, operation)
}

// versionOf returns the version of what an object contains. An object that the policy does not allow as it is gets a
// version that no owner has, so that the owner sends it again: an AppProject is then narrowed, an Application is rejected
// with the reason and stays.
func (l *agentSync) versionOf(s *scope, o *kind.Object, held kind.ReplicaItem) engine.Version {
	p := l.reconciler.policy.Policy
	if p == nil || s.cfg.Style != engine.Mirror || !held.Ownership.Owned {
		return engine.VersionOf(held.Content)
	}
	allowed := true
	switch s.cfg.Name {
	case kind.ApplicationScope:
		allowed = l.reconciler.refusesApplication(o) == nil
	case kind.AppProjectScope:
		narrowed, err := p.Project(o)
		allowed = err == nil && kind.Same(o, narrowed)
	}
	if !allowed {
		return engine.VersionOf(append([]byte("not allowed by the policy: "), held.Content...))
	}
	return engine.VersionOf(held.Content)
}

// refusedByPolicy returns why an item is not applied, or nil.
func (l *agentSync) refusedByPolicy(s *scope, e engine.Apply) *Failure {
	p := &l.reconciler.policy
	switch {
	case s.cfg.Style != engine.Mirror:
		return nil
	case p.Frozen != "":
		return &Failure{Code: engine.NotAllowed, Message: p.Frozen}
	case p.Policy == nil || s.cfg.Name != kind.ApplicationScope:
		return nil
	}
	o, err := s.kind.Merge(nil, e.Key, e.Content, nil, kind.Ownership{Owned: true}, &l.env)
	if err != nil {
		return failure(err)
	}
	if err := l.reconciler.refusesApplication(o); err != nil {
		return &Failure{Code: engine.NotAllowed, Message: err.Error()}
	}
	return nil
}

// refusesApplication returns why the policy does not allow an Application, or nil. The AppProject that it names on this
// cluster counts too. A project that the agent has not narrowed, or could not, may allow what the policy forbids.
func (n *Reconciler) refusesApplication(o *kind.Object) error {
	p := n.policy.Policy
	if err := p.Application(o); err != nil {
		return err
	}
	if project := n.cache.get(n.projectRef(kind.ProjectOf(o))); project != nil {
		return p.Exceeds(project)
	}
	return nil // Argo CD deploys nothing without the project
}

// judgeApplications judges the Applications of an AppProject again, because the project has changed on the spoke.
func (n *Reconciler) judgeApplications(was, is *kind.Object) {
	if n.cfg.Side != kind.Spoke || n.policy.Policy == nil || was != nil && is != nil && sameRules(was, is) {
		return
	}
	l := n.syncs[""]
	s := l.scope(kind.ApplicationScope)
	if !l.known || s.cfg.Role != engine.Replica {
		return
	}
	for _, o := range n.cache.byProject[cmp.Or(is, was).Name()] {
		l.reportStored(s, o, o)
	}
	l.step(engine.Reconsider{Scope: s.cfg.Name})
}

// mergeNarrowed merges received content into the local object. An AppProject gets only what the policy allows.
func (l *agentSync) mergeNarrowed(s *scope, local *kind.Object, e engine.Apply, ownership kind.Ownership) (*kind.Object, error) {
	merged, err := s.kind.Merge(local, e.Key, e.Content, e.Extra, ownership, &l.env)
	p := &l.reconciler.policy
	if err != nil || p.Policy == nil || s.cfg.Name != kind.AppProjectScope || s.cfg.Role != engine.Replica || l.reconciler.cfg.Side != kind.Spoke {
		return merged, err
	}
	narrowed, err := p.Policy.Project(merged)
	if err != nil {
		return nil, &kind.RejectError{Code: engine.NotAllowed, Message: err.Error()}
	}
	return narrowed, nil
}

// permitted returns the part of an item's content that the spoke's policy, or on the hub the Agent, allows. It is what
// the object should contain.
func (l *agentSync) permitted(s *scope, e engine.Apply) []byte {
	narrowed := l.reconciler.policy.Policy != nil && s.cfg.Name == kind.AppProjectScope
	if !narrowed && !kind.RefusesContent(e.Content, &l.env) {
		return e.Content
	}
	if o, err := l.mergeNarrowed(s, nil, e, kind.Ownership{Owned: true}); err == nil {
		if held, ok := s.kind.ReadReplica(o, &l.env); ok {
			return held.Content
		}
	}
	return e.Content
}

// refusedDeletion returns why an object must not be deleted for the hub now, or nil. An Application that may be deleted
// counts against the budget of the policy, once. A deletion that has begun may end.
func (l *agentSync) refusedDeletion(scope string, o *kind.Object) *Failure {
	p := &l.reconciler.policy
	if l.reconciler.cfg.Side != kind.Spoke || o.IsDeleting() {
		return nil
	}
	if p.Frozen != "" {
		return &Failure{Code: engine.NotAllowed, Message: p.Frozen}
	}
	if p.Policy == nil || scope != kind.ApplicationScope {
		return nil
	}
	limit, window, limited := p.Policy.DeletionBudget()
	limit = min(limit, MaxDeletions)
	now := l.reconciler.now
	p.deletions = slices.DeleteFunc(p.deletions, func(d Deletion) bool { return d.At+window <= now })
	for i := range p.deletions { // of an earlier process whose clock was ahead
		p.deletions[i].At = min(p.deletions[i].At, now)
	}
	if !limited || slices.ContainsFunc(p.deletions, func(d Deletion) bool { return d.UID == o.UID() }) {
		return nil
	}
	if len(p.deletions) >= limit {
		next := window
		for _, d := range p.deletions {
			next = min(next, d.At+window-now)
		}
		return &Failure{Code: engine.OnHold, RetryAfter: max(next, engine.Second), Message: fmt.Sprintf("the AgentPolicy of the workload cluster (deletions) allows "+
			"the hub to delete %d Applications in %d s; the others wait until a user of that cluster raises spec.deletions.max, or the time is over", limit, window/engine.Second)}
	}
	p.deletions = append(p.deletions, Deletion{UID: o.UID(), At: now, Until: now + window})
	return nil
}
