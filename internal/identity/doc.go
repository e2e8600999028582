// Package identity answers who is at the other end of a connection, and proves
// who we are: certificates and where they come from, the expression that finds
// an agent's name in what the transport has verified, revocation, and words for
// what goes wrong with any of them.
//
// Nothing here is read once: every handshake uses the newest certificates and
// CAs, from files (Files) or from what assembly passes in from Secrets (Store).
// Material that is broken never replaces material that works.
package identity
