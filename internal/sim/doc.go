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
// The checks know the contract with Argo CD and use none of the product's functions. They run at every write
// (guards.go), and when the faults have stopped and the world is idle (oracle.go).
package sim
