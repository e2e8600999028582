// Package fleet serves the fleet page of argocd-agentctl: a live view of all agents in a browser.
//
// State has one row per agent. Server serves one page without external resources and a stream of server-sent events with
// changed rows. Rows are state, not events: a stream has only a cursor, so a slow or disconnected browser uses no memory
// and gets each changed row once.
//
// Rows contain text from workload clusters. The page writes it as text, and its content security policy blocks everything
// else. The URL contains a secret, and the server checks the origin of requests.
package fleet
