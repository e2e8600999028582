package sim

// What the product does not hold to yet. It is switched on here when its fix is
// merged.
const (
	// crdUpgrades: a field that was pruned arrives after an upgrade of the CRD.
	crdUpgrades = false
)
