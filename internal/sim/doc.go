// Package sim tries the product in a world of its own: hubs and agents with
// their API servers, a network, Argo CD and people, under virtual time and with
// every fault that we could think of.
//
// The processes in it are real: the same node, engine, kinds and wire format
// that principal and agent run. What is simulated is what surrounds them, and
// where the product will do I/O the simulator has a shell that does the same
// with its own servers (process.go, watch.go, calls.go, network.go).
//
// A world is a function of its seed. One goroutine, one clock, one source of
// randomness; a plan of actions (what people do, what breaks) is drawn before
// the world starts, so that a failing seed can be shrunk by leaving actions out.
//
// What must hold is checked by code that knows the contract with Argo CD and
// nothing of the product's own functions: at every write (guards.go), and when
// the faults have stopped and the world has come to rest (oracle.go).
package sim
