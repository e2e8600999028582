package sim

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is the CRD of Applications on a spoke: an old one prunes a field that it does not know.

var crdActions = []actionType{
	{name: "CRD upgrade", weight: 4, fault: true, rare: 30, do: upgradeCRD},
}

// upgradeCRD installs a CRD that knows the field. The API server may go by the old one for a few seconds.
func upgradeCRD(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.cluster.prunes || s.cluster.crd > 1 {
		return
	}
	w.tracef("%s: the CRD is upgraded", s.cluster.name)
	s.cluster.crd++
	w.after(w.between(0, 5*second), func() { s.cluster.prunes = false })
	for _, p := range append(s.clones, s.process) {
		if p.up && p.cluster == s.cluster {
			p.later(s.cluster.watchLag(), p.readSchema)
		}
	}
}

// readSchema reports the schema of Applications to the reconciler.
func (p *process) readSchema() {
	p.step(reconcile.Schema{Resource: kind.Applications, Version: fmt.Sprint("crd/", p.cluster.crd)})
}

// lossy counts the Applications of which a spoke does not store a field.
func (w *world) lossy() int {
	n := 0
	for _, o := range w.hub.st.list(kind.Applications) {
		for _, s := range w.spokes {
			if s.cluster.prunes && w.sentTo(s, refOf(kind.Applications, o), o) && o.Get("spec", "experimental") != nil {
				n++
			}
		}
	}
	return n
}

// dropped checks that users are shown a field that a spoke does not store, and only then.
func (d *differ) dropped(s *spoke, at string, h tree) {
	shown := condition(h, "AgentFieldsDroppedWarning")
	lost := s.cluster.prunes && dig(h, "spec", "experimental") != nil
	if lost != (shown != "") {
		d.add("%s: a field is dropped: %v, and the hub shows %q", at, lost, shown)
	}
}
