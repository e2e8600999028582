// Package resource gives the hub live access to the API servers of workload clusters. A request enters at the Hub, goes
// through a tunnel, and the Agent sends it to its API server with its own credentials.
//
//	argocd-server, kubectl ──mTLS──► Hub ──HTTP/1.1 over a tunnel──► Agent ──► API server
//
// The Hub authenticates the caller and selects the agent. It forwards nothing of the caller's identity. The Agent
// decides by its Policy, trusts nothing that it receives, and checks paths and headers again.
//
// Both are reverse proxies that do not buffer, so that watches, logs, exec sessions and port-forwards work as without
// them. If the caller disconnects, the request to the API server is canceled. An abandoned request is not executed later,
// and no request is sent twice. The only cache is the Hub's copy of each agent's discovery documents.
package resource
