// Package argocdagentv1 is the protocol between a principal and its agents, generated from the .proto files in this
// directory. Their comments document it, sync.proto first.
//
// Package internal/wire converts the messages and checks their limits.
package argocdagentv1
