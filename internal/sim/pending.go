package sim

// What the product does not hold to yet. A check or a fault is switched on here
// when its fix is merged; the simulator models it either way.
const (
	// checkHooks: a removal that no user asked for runs no delete hooks.
	checkHooks = false
	// checkTakeover: what is being deleted takes over no object that is another's.
	checkTakeover = false
	// checkBackward: while the hub's store is not believed, no spec goes back.
	checkBackward = false
)
