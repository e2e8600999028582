package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file looks at every write of our own processes and asks whether they were entitled to it.

// changed follows every change in every cluster.
func (w *world) changed(c *cluster, who actor, ch change) {
	if w.group != nil && !w.group.changed(c, who, ch) {
		return
	}
	w.ledger.track(c, ch)
	if ch.ref.Resource == kind.Applications {
		if c.spoke != nil {
			c.spoke.ctl.noticed(ch.ref)
		} else {
			for _, a := range w.appsets {
				if a.ns == ch.ref.Namespace {
					a.plan()
				}
			}
			if ch.new != nil {
				w.ledger.refusals(ch.new)
			}
		}
	}
	if who.proc == nil {
		if removal(ch) {
			w.ledger.deletedByUser(c, ch)
		}
		w.foreign++
		return
	}
	if ch.ref.Resource == leases || ch.ref.Resource == w.registrations() {
		return
	}
	w.writes++
	w.checks++
	switch {
	case c.hub:
		w.guardHub(who, ch)
	case who.mode == kind.Managed: // what an agent may do depends on the mode in which it sent the request
		w.guardManaged(c.spoke, who, ch)
	default:
		w.guardAutonomous(c.spoke, who, ch)
	}
}

// guardManaged watches an agent on a managed spoke.
func (w *world) guardManaged(s *spoke, who actor, ch change) {
	l, agent := w.ledger, s.agent.Name
	bad := func(what string) {
		w.violate("%s %s %s on %s (%s)", who.what, what, short(ch.ref), s.cluster.name, who.why)
	}
	if s.stranger {
		if l.hubEra > 0 {
			return // the hub has lost its memory, and who comes first has the name
		}
		bad("writes in a cluster that is not the agent's:")
		return
	}
	if !mayTouch(ch) {
		bad("touches what is none of ours:")
	}
	if ch.old != nil && ch.new != nil && ch.ref.Resource == kind.Applications && tracked(ch.old) && !ownedByAgent(ch.old) && !ownedByAgent(ch.new) {
		w.guardAutonomous(s, who, ch) // a child may get commands, and nothing else
		return
	}
	entitled := func(o *kind.Object) bool { return l.placed[o.Annotation(sourceKey)+"@"+agent] }
	switch {
	case ch.old == nil:
		if !ownedByAgent(ch.new) {
			bad("creates without a mark")
		} else if !entitled(ch.new) {
			bad("creates what was never meant for this agent:")
		}
	case !ownedByAgent(ch.old) && ch.new != nil:
		switch {
		case !ownedByAgent(ch.new):
			bad("changes what is not ours:")
		case !entitled(ch.new):
			bad("adopts for what was never meant for this agent:")
		case w.shape.policy.AdoptNever && ch.new.Annotation("argocd.argoproj.io/adoption-policy") != "always" && ch.ref.Resource == kind.Applications:
			bad("adopts against the policy")
		}
	case ch.new != nil && ownedByAgent(ch.new) && !entitled(ch.new):
		bad("writes what was never meant for this agent:")
	}
	if ch.old != nil && ch.new != nil && ownedByAgent(ch.new) && ch.new.Annotation(sourceKey) != ch.old.Annotation(sourceKey) {
		w.guardAdoption(s, ch, bad)
	}
	if removal(ch) {
		w.guardRemoval(s, ch, bad)
		w.guardBudget(s, who, ch, bad)
	}
	if ch.ref.Resource == kind.Applications && ch.new != nil {
		w.guardApplication(s, who, ch, bad)
	}
}

// guardApplication watches what an agent writes into an Application.
func (w *world) guardApplication(s *spoke, who actor, ch change, bad func(string)) {
	if ownedByAgent(ch.new) && (ch.old == nil || !bytes.Equal(ch.old.Get("spec"), ch.new.Get("spec"))) {
		spec := ch.new.Annotation(sourceKey) + "/" + unquote(ch.new.Get("spec", "source", "targetRevision"))
		if !w.ledger.might[spec+"@"+s.agent.Name] {
			bad("writes what was frozen whenever the hub had it:")
		}
	}
	if ch.old != nil && !sameExcept(withoutHeld(ch.old), withoutHeld(ch.new), "operationState") {
		bad("changes the status of")
	}
	w.guardOrder(who.proc, ch, w.ledger.hubEra, bad)
	w.guardBackward(s, ch, bad)
}

// guardAdoption checks that an object is not taken over for something that is being deleted: then its resources would
// go with it.
func (w *world) guardAdoption(s *spoke, ch change, bad func(string)) {
	source := ch.new.Annotation(sourceKey)
	if w.ledger.cascade[source] && w.settled(s, w.ledger.cascadeAt[source]) {
		bad("takes over for a deletion")
	}
}

// removal reports whether a write deletes, or begins to.
func removal(ch change) bool {
	return ch.old != nil && !ch.old.IsDeleting() && (ch.new == nil || ch.new.IsDeleting())
}

func (w *world) guardRemoval(s *spoke, ch change, bad func(string)) {
	source := ch.old.Annotation(sourceKey)
	switch {
	case !ownedByAgent(ch.old):
		bad("deletes what is not ours:")
	case w.ledger.mayCascade(s, source):
	case ch.old.Annotation(adoptedKey) == "true" && ch.ref.Resource != kind.Secrets && !w.ledger.goneFromHub[source]:
		bad("deletes what it had adopted:")
	case w.ledger.mayRemove(s, source), w.misplaced(s, source, ch.ref):
	default:
		bad("deletes what its owner has not given up:")
	}
}

// misplaced reports whether a copy is not where the mapping of today puts it.
func (w *world) misplaced(s *spoke, source string, at kind.Ref) bool {
	for _, o := range s.hub().st.list(at.Resource) {
		if s.hub().id(o) == source {
			return copyOnSpoke(s, refOf(at.Resource, o)) != at
		}
	}
	return false
}

// mayTouch reports whether an object is of a kind that crosses at all.
func mayTouch(ch change) bool {
	o := ch.new
	if o == nil {
		o = ch.old
	}
	switch ch.ref.Resource {
	case kind.Secrets:
		t := o.Label("argocd.argoproj.io/secret-type")
		return t == "repository" || t == "repo-creds"
	case kind.ConfigMaps:
		return o.Name() == "argocd-gpg-keys-cm"
	}
	return true
}

// guardAutonomous watches an agent on an autonomous spoke: it may give commands to Applications, and nothing else.
func (w *world) guardAutonomous(s *spoke, who actor, ch change) {
	bad := func(what string) {
		w.violate("%s %s %s on %s (%s)", who.what, what, short(ch.ref), s.cluster.name, who.why)
	}
	if ch.ref.Resource != kind.Applications || ch.old == nil || ch.new == nil {
		bad("creates or deletes on an autonomous spoke:")
		return
	}
	before, after := decode(ch.old), decode(ch.new)
	if !sameExcept(withoutHeld(ch.old), withoutHeld(ch.new), "operationState") { // it may be left from another mode
		bad("changes the status of")
	}
	for _, t := range []tree{before, after} {
		cut(t, "metadata", "annotations", refreshKey)
		cut(t, "metadata", "annotations", hydrateKey)
		cut(t, "metadata", "annotations", "argocd-agent.argoproj-labs.io/last-command")
	}
	if !sameMeta(before, after) || text(before["spec"]) != text(after["spec"]) {
		bad("changes more than commands on")
	}
}

// guardHub watches principals.
func (w *world) guardHub(who actor, ch change) {
	bad := func(what string) { w.violate("%s %s %s on the hub (%s)", who.what, what, short(ch.ref), who.why) }
	if ch.ref.Resource != kind.Applications && ch.ref.Resource != kind.AppProjects {
		bad("writes")
		return
	}
	agent := ""
	for _, o := range []*kind.Object{ch.old, ch.new} {
		if o != nil {
			agent = o.Annotation(agentKey)
		}
	}
	s := w.spokeOf(agent)
	if isChildCopy(ch.old) || isChildCopy(ch.new) {
		w.guardChild(s, ch, bad)
		return
	}
	if ch.old != nil && ch.old.Annotation(agentKey) == "" && !w.handsOver(s, ch) || agent == "" {
		w.guardHubOwn(ch, bad)
		return
	}
	if s != nil && s.managed() && s.modeChanged {
		w.guardHubOwn(ch, bad)
		return
	}
	if s == nil || s.managed() {
		bad("marks for an agent that has no copies:")
		return
	}
	o := ch.new
	if o == nil {
		o = ch.old
	}
	if ch.ref.Resource == kind.Applications && ch.ref.Namespace != s.agent.HubNamespace ||
		ch.ref.Resource == kind.AppProjects && !strings.HasPrefix(ch.ref.Name, s.agent.Name+"-") {
		bad("writes a copy outside the agent's place:")
	}
	source := o.Annotation(sourceKey)
	if strings.HasPrefix(source, "clone-") && w.ledger.hubEra > 0 {
		return // accepted when the hub had lost its record
	}
	if !w.ledger.placed[source+"@"+agent] {
		bad("writes what did not come from the agent:")
	}
	if removal(ch) {
		if !w.ledger.mayRemove(s, source) {
			bad("deletes what its owner has not given up:")
		}
		w.guardBudget(s, who, ch, bad)
	}
	if ch.ref.Resource == kind.Applications && ch.new != nil {
		w.guardOrder(who.proc, ch, w.ledger.spokeEra[agent], bad)
	}
}

// handsOver reports whether an Application of the hub becomes the replica of an agent that was managed and had it.
func (w *world) handsOver(s *spoke, ch change) bool {
	return s != nil && s.modeChanged && !s.managed() && ch.ref.Resource == kind.Applications && ch.new != nil &&
		ch.old.UID() == ch.new.UID() && w.ledger.placed[ch.old.UID()+"@"+s.agent.Name]
}

// guardHubOwn guards what the hub's users own. A principal fills in the status, assigns command IDs, clears operations
// and finished refreshes, and removes the finalizers of what the spoke has deleted.
func (w *world) guardHubOwn(ch change, bad func(string)) {
	if ch.old == nil || removal(ch) {
		bad("creates or deletes what belongs to the hub's users:")
		return
	}
	if ch.old.IsDeleting() && (ch.new == nil || len(ch.new.Finalizers()) < len(ch.old.Finalizers())) {
		return // released
	}
	before, after := decode(ch.old), decode(ch.new)
	for _, t := range []tree{before, after} {
		cut(t, "metadata", "annotations", refreshKey)
		cut(t, "metadata", "annotations", hydrateKey)
	}
	if !sameMeta(before, after) || text(before["spec"]) != text(after["spec"]) {
		bad("changes what belongs to the hub's users:")
	}
	if ch.ref.Resource != kind.Applications {
		bad("changes a project of the hub:")
	}
}

// guardOrder checks that a process never puts an older spec over a newer one of the same object. The owner may come
// back to what it had before, so what counts is that its states are passed through in their order.
func (w *world) guardOrder(p *process, ch change, era int, bad func(string)) {
	o := ch.new
	if ch.old != nil && bytes.Equal(ch.old.Get("spec"), o.Get("spec")) {
		return
	}
	source := o.Annotation(sourceKey)
	revision := unquote(o.Get("spec", "source", "targetRevision"))
	turns := w.ledger.order[source+"/"+revision]
	if len(turns) == 0 || w.late { // a late write will be seen as a change like any other
		return
	}
	key := strconv.Itoa(era) + "/" + source
	i, _ := slices.BinarySearch(turns, p.specs[key])
	if i == len(turns) {
		bad("goes back to " + revision + " with")
		return
	}
	p.specs[key] = turns[i]
}

func sameMeta(a, b tree) bool {
	empty := func(t tree, key string) string {
		if v := digTree(t, "metadata", key); len(v) > 0 {
			return text(v)
		}
		return ""
	}
	return empty(a, "labels") == empty(b, "labels") && empty(a, "annotations") == empty(b, "annotations") &&
		text(finalizers(a)) == text(finalizers(b))
}

// withoutHeld takes off the one condition that an agent sets on its copies.
func withoutHeld(o *kind.Object) *kind.Object { return kind.ClearCondition(o, kind.ConditionHeld) }

// sameExcept compares statuses but for one field.
func sameExcept(a, b *kind.Object, field string) bool {
	x, y := digTree(decode(a), "status"), digTree(decode(b), "status")
	delete(x, field)
	delete(y, field)
	return len(x) == 0 && len(y) == 0 || text(x) == text(y)
}
