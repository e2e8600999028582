// Package shared lets a cluster do without a repo-server and a Redis of its own: it uses the hub's, through tunnels that
// its agent opens.
//
// On the spoke a Door listens for Argo CD's controllers and carries each of their connections to the hub, as bytes. On the
// hub a RepoServer stands in front of Argo CD's repo-server. That one trusts whoever asks, with its manifests, its cache
// and even the options of the programs it runs, so an agent's requests are looked at first:
//
//   - only the methods that Argo CD's controllers call on a spoke; any other is refused
//   - only repositories that the hub's own projects permit the agent, wherever in a request they are named
//   - nothing that changes where a repository's content or tokens for it come from, or whose identity is shown there, or
//     which programs run with which options, unless the hub has the same setting
//   - nothing else to be fetched, read or run than what is in the repository, unless the hub's own Application says so
//   - no files from behind symbolic links
//   - a place of the agent's own in the cache of manifests, whose keys are too short to be told apart by themselves
//
// Credentials are the spoke's: they are in its requests, as its controllers have put them there. The hub adds none.
// Requests and answers are passed on as bytes; of the protobuf in them only the fields above are read, so releases of
// Argo CD with more fields work too. The other half, Redis, is package redis's Tenants.
package sharedmode
