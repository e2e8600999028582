// Package engine keeps two sets the same over a connection that may fail at any
// time. It is the heart of principal and agent, and runs at both ends.
//
// A Peer is one end of the relation between the hub and one agent. It has a
// number of scopes. In each scope one side is the owner, which publishes a set
// of items, and the other the replica, which makes its own set equal to it.
//
// The package is pure. Step takes one input and returns effects; time is an
// argument, there is no randomness, no goroutine, no I/O and no log, and every
// iteration has a fixed order. So a run is reproduced exactly from its inputs.
//
// What holds at all times:
//
//   - State moves, not events. The owner keeps a set of dirty keys, never a
//     queue of changes; content is read when it is sent. Memory is bounded by
//     the number of objects, however long the peer is away.
//   - An item is delivered when the replica's API server has accepted it, and
//     until then the owner knows that it is not.
//   - Per key there is one item in flight. No key waits for another, except an
//     Application for its own project, and that for a bounded time.
//   - A replica removes an item only if the owner was seen to lose it, or if a
//     complete round from the owner's complete view lacks it; only what carries
//     our mark; and not, without a confirmation, when the deletion looks like
//     an accident (too many at once, or a store that went back in time).
//   - A message of another session than the current one changes nothing.
package engine
