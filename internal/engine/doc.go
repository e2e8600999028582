// Package engine keeps two sets equal over a connection that may fail at any time. It is the sync core of principal and
// agent and runs at both ends.
//
// A Peer is one end of the connection between the hub and one agent. It has several scopes. In each scope one side is
// the owner, which publishes a set of items. The other side is the replica, which makes its set equal.
//
// The package is pure. Step takes one input and returns effects. Time is an argument. There is no randomness,
// goroutine, I/O or log, and every iteration has a fixed order. So a run can be reproduced from its inputs.
//
// Invariants:
//
//   - State moves, not events. The owner keeps a set of dirty keys, not a queue of changes. Content is read when it is
//     sent. Memory is bounded by the number of objects, however long the peer is disconnected.
//   - An item is delivered when the replica's API server has accepted it. Until then the owner keeps it as not
//     delivered.
//   - Per key there is one item in flight. No key waits for another, except an Application for its project, and only
//     for a bounded time.
//   - A replica deletes an item only if the owner saw it go, or if a complete round from the owner's complete view
//     lacks it. It deletes only objects with our ownership annotation. It needs a confirmation if the deletion exceeds
//     the deletion budget or the owner's store regressed.
//   - A message of another session changes nothing.
package engine
