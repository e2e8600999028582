// Package sim runs the product in a simulated world: hubs and agents with their API servers, a network, Argo CD and
// users, under virtual time and with faults.
//
// The processes are real: the same reconciler, engine, kinds and wire format that principal and agent run. Their
// environment is simulated. Where the product does I/O, the simulator does the same with its own servers (process.go,
// watch.go, calls.go, network.go).
//
// A world is a function of its seed. There is one goroutine, one clock and one source of randomness. A plan of actions
// (what users do, what breaks) is drawn before the world starts, so that a failing seed can be shrunk by leaving
// actions out.
//
// About one seed in seven has two hubs, an active one and its standby, and about half of these a Lease in a third place
// (hubs.go, hublease.go). Operators switch between the hubs by plan and by force, users change objects on the wrong one, and
// hubs, agents and the Lease are cut off from each other (hubswitch.go). The checks are in hubguards.go: an agent never
// follows a lower generation than before, a hub that is not active serves no agent, a standby deletes and replaces only what
// the active hub had, and both hubs are equal in the end. Deletions on spokes, commands and the order of specs are checked
// as with one hub. A deletion counts only on the hub that the agent follows, or followed next.
//
// The checks know the contract with Argo CD and use none of the product's functions. They run at every write
// (guards.go), and when the faults have stopped and the world is idle (oracle.go).
package sim
