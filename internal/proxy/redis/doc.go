// Package redis lets Argo CD's API server read the caches of all clusters as if they were in the hub's own Redis.
//
// On the hub a Server stands in front of Redis. What belongs to the Application of an agent (its resource tree, its
// managed resources, the channel that tells of changes) is answered from the agent's Redis through a tunnel; everything
// else passes to the hub's Redis. On the spoke a Relay stands between the tunnel and Redis and lets the hub read those keys
// and nothing else. ClusterInfo keeps the entries of Argo CD's cluster page.
//
// How a client's command travels:
//
//	                     ┌─ lane ─────── commands without state of their own, of all clients, share few pipelined
//	client ─► session ───┤               connections to Redis: cheaper for Redis than one connection for each client
//	          keeps      ├─ own ──────── AUTH, HELLO, SUBSCRIBE, MULTI and whatever is unknown: a connection of the
//	          replies    │               session's own, with Redis's own meaning
//	          in order   └─ agents ───── keys of agents: cache, else a request through the agent's tunnel
//
// A client that has asked for nothing but what takes a lane for a while is read by the loop, one goroutine for all of them,
// which also reads the lanes and hands out their replies: a proxy that is not to cost much has to work as Redis itself
// does. Its first request that is something else brings the client back to a goroutine of its own, where waiting is
// allowed.
//
// Authentication is Redis's own: a client's AUTH or HELLO is passed on, and an agent's key is answered only to a client
// whose identity Redis lets read keys like it. SUBSCRIBE is passed on too, also for agents' channels: Redis confirms, counts
// and pings as ever, and the Server only adds the messages that came from the agent.
//
// Trees are cached as long as a subscription at the agent would tell of a change. Managed resources are not: Argo CD writes
// them after it has told of the change, so the message does not say when they are new.
//
// Commands and replies are forwarded as the bytes in which they came, so this package has a reader of its own: the
// libraries that we looked at decode every value. Its own requests are few (GET, MGET, SET, SUBSCRIBE) and go
// through tunnels with deadlines of their own, for which a client with pools and retries would have to be tamed.
package redis
