// Package argocdagentv1 is the protocol that a principal and its agents speak,
// generated from the .proto files beside it. They are its documentation: begin
// with sync.proto.
//
// The product itself uses the services from here, but reads and writes the
// messages with internal/wire, which holds them to their limits while it parses.
package argocdagentv1
