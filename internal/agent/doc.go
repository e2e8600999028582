// Package agent assembles the workload cluster's side: the node with its
// cluster, what it remembers across restarts, and the connection to the hub.
package agent
