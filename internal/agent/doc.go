// Package agent assembles the agent: the reconcile core with its cluster, the state that survives restarts, and the
// connection to the hub.
package agent
