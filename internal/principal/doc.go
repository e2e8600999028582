// Package principal assembles the principal: the reconciler with its API server, the fleet of agents, their connections,
// and live access.
package principal
