// Package agentrows has the live rows of agents that the fleet view shows, and their timelines.
//
// State has one row per agent. A client reads it as a stream of server-sent events with changed rows. Rows are state, not
// events: a stream has only a cursor, so a slow or disconnected client uses no memory and gets each changed row once.
//
// Rows contain text from workload clusters.
package agentrows
