// Package principal assembles the hub's side: the node with its cluster, the
// agents' registrations, and the connections.
package principal
