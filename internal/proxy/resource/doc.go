// Package resource is live access to a workload cluster from the hub: a request for the API server of an agent's cluster
// enters at the hub, travels through a tunnel, and is carried out by the agent with the agent's own credentials.
//
//	argocd-server, kubectl ──mTLS──► Hub ──HTTP/1.1 over a tunnel──► Agent ──► API server
//
// The Hub knows who is asking and which agent is meant; nothing of the caller's identity goes further. The Agent decides:
// its Policy is the law of the workload cluster, and a hub cannot talk it out of it. So the Agent trusts nothing that it
// receives, and checks paths and headers once more.
//
// Both halves are reverse proxies that pass bytes: they hold back neither requests nor answers, so that watches, logs,
// terminals and port-forwards behave as they do without them, and whoever goes away takes the far end along. A request
// that its caller gave up on is not carried out later, and none is sent twice. The only memory is the Hub's copy of each
// agent's discovery documents, for the times when the agent is away.
package resource
