package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Traits is what the other packages need to know about a kind. Scopes, watches, comparisons and the values of
// spec.kinds follow from it.
type Traits struct {
	Name         string // in spec.kinds of an Agent; several kinds may share it
	Style        engine.ScopeStyle
	Owner        func(Mode) Side // side that publishes; if nil, the side that owns the configuration
	ManagedOnly  bool            // autonomous agents do not replicate it
	StandbyOnly  bool            // only a standby hub gets it
	NoBudget     bool            // the deletion budget does not apply: for credentials and keys, of which fewer are safer
	Credentials  bool            // its content must not be shown
	DependsOn    string          // scope of the items in Item.DependsOn
	Reads        []Resource      // other resources that decide what is in the scope
	Announced    bool            // a release that does not announce its scopes does not know it
	AnyNamespace bool            // objects may be outside of Argo CD's namespace
	Selector     string          // label selector for the watch of Resource; if empty, all objects

	// Agents (hub) returns a matcher of the agents that an object may be for. If nil, every change affects all agents.
	// It requires that the key of an object that the hub owns is its name.
	Agents func(*Object, *Env) AgentMatcher
}

// OwnerIn returns the side that publishes in a mode.
func (t Traits) OwnerIn(mode Mode) Side {
	switch {
	case t.Owner != nil:
		return t.Owner(mode)
	case mode == Managed:
		return Hub
	}
	return Spoke
}

// In reports whether the kind is replicated in a mode. A standby gets everything, so it shares no kind with agents.
func (t Traits) In(mode Mode) bool {
	if t.StandbyOnly != (mode == Standby) {
		return false
	}
	return mode != Autonomous || !t.ManagedOnly
}

// Watch is what must be watched for the kinds of a resource.
type Watch struct {
	Resource     Resource
	Selector     string
	AnyNamespace bool
}

// Watches returns what must be watched for kinds, one Watch per resource in the order of the kinds.
func Watches(kinds []Kind) []Watch {
	var out []Watch
	add := func(w Watch) {
		i := slices.IndexFunc(out, func(other Watch) bool { return other.Resource == w.Resource })
		if i < 0 {
			out = append(out, w)
			return
		}
		if out[i].Selector != w.Selector {
			out[i].Selector = ""
		}
		out[i].AnyNamespace = out[i].AnyNamespace || w.AnyNamespace
	}
	for _, k := range kinds {
		t := k.Traits()
		add(Watch{k.Resource(), t.Selector, t.AnyNamespace})
	}
	return out
}

// Resources returns the resources of kinds, in their order.
func Resources(kinds []Kind) []Resource {
	var out []Resource
	for _, w := range Watches(kinds) {
		out = append(out, w.Resource)
	}
	return out
}

// Names returns the values of spec.kinds of an Agent, sorted.
func Names() []string {
	var out []string
	for _, k := range All() {
		out = append(out, k.Traits().Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
