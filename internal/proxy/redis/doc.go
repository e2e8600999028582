// Package redis lets the Argo CD API server read the caches of all clusters as if they were in the hub's Redis.
//
// On the hub, a Server accepts clients and forwards their commands to the hub's Redis. It answers GET of an agent's
// Application (resource tree, managed resources) from the agent's Redis through a tunnel. On the workload cluster, a Relay
// lets the hub read those keys and nothing else. ClusterInfo writes the entries of Argo CD's cluster page. Tenants serves
// agents that have no Redis.
//
// Each client has its own connection to the hub's Redis, so authentication, database, protocol, transactions and
// subscriptions have Redis semantics:
//
//	client ─► clientConn ─┬─► hub's Redis                    all other commands
//	    ▲                 └─► agentPool ─► cache or tunnel   keys of agents
//	    └── replyForwarder ◄──── replies in the order of the requests
//
// An agent's key is served only to a client that the hub's Redis lets read such keys. SUBSCRIBE is forwarded, and the
// Server adds the messages that agents publish.
//
// Resource trees are cached while a subscription at the agent reports changes. Managed resources are not cached, because
// Argo CD writes them after it publishes the change.
//
// Replies are forwarded as the bytes that were received. The client libraries that we evaluated decode every value and
// allocate the length that a peer declares, so this package has its own RESP reader.
package redis
