// Package sharedmode lets a workload cluster use the hub's repo-server and Redis instead of its own, through tunnels.
//
// On the spoke, a Forwarder forwards the connections of Argo CD's controllers to the hub. On the hub, a RepoServer is a
// proxy in front of Argo CD's repo-server. The repo-server trusts every client, so the proxy checks an agent's requests:
//
//   - only the methods that Argo CD's controllers call on a spoke
//   - only repositories that the hub's projects permit for the agent, in every field of a request
//   - no change of the source of content or tokens, of the identity, or of programs and their options, unless the hub has
//     the same setting
//   - nothing is fetched, read or run from outside the repository, unless the hub's Application specifies it
//   - no files behind symbolic links
//   - a separate key space in the cache of manifests for each agent, because cache keys are too short to be unique
//
// Credentials are in the spoke's requests. The hub adds none. Requests and responses are forwarded as bytes. Only the
// checked fields are parsed, so other releases of Argo CD work, too. Package redis has the proxy for Redis.
package sharedmode
