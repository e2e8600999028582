// Package node is one side of the product without its I/O: it binds the objects
// of one cluster, by way of their kinds, to the engine.
//
// A Node keeps a cache of its cluster's objects and one link for each agent (on
// the hub) or one altogether (on a spoke). Objects that are seen become items to
// publish, or tell what a replica holds; items that the engine wants applied
// become conditional writes. Commands, finalizers and conditions, which concern
// two objects or two sides, are tended here too.
//
// It is as pure as the engine: Step takes an input and returns effects, so the
// simulator proves the very code that principal and agent run.
package reconcile
