// Package reconcile is one side of the product without its I/O. It connects the objects of one cluster, through their
// kinds, to the engine.
//
// A Reconciler has a cache of its cluster's objects and one agentSync per agent (hub) or one in total (spoke). Observed
// objects become items to publish, or reports of what a replica contains. Items that the engine applies become
// conditional writes. Commands, finalizers and conditions concern two objects or two sides and are handled here too.
//
// The package is pure, as the engine is: Step takes an input and returns effects. So the simulator runs the same code
// as principal and agent.
package reconcile
