// Package tunnel carries byte streams between the hub and targets of an agent, such as its API server, and between an
// agent and targets of the hub. On both sides a tunnel is a net.Conn. Any transport that has a Stream can carry it.
//
// The agent opens the stream of every tunnel. For a target of the agent, the hub requests the stream with a token that
// is valid once and only on the agent's own connection (Pool, Client). For a target of the hub, the agent names the
// target (Client.Connect, Target). Tunnels end with the session.
package tunnel
