package sim

// This file is the CRD of Applications on a spoke: an old one prunes a field that
// it does not know.

var crdActions = []act{
	{name: "CRD upgrade", weight: 4, fault: true, rare: 30, do: upgradeCRD},
}

// upgradeCRD installs a CRD that knows the field.
func upgradeCRD(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !crdUpgrades || !s.cluster.prunes {
		return
	}
	w.tracef("%s: the CRD is upgraded", s.cluster.name)
	s.cluster.prunes = false
}
