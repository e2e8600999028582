// Package fleet serves the fleet page of argocd-agentctl: a live view of all agents in a browser.
//
// Server serves the page of package fleetui, its data, and a stream of the rows of agents (package agentrows).
//
// The URL contains a secret, and the server checks the origin of requests.
package fleet
