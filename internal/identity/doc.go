// Package identity authenticates both ends of a connection: certificates and their sources, the expression that finds
// an agent's name in a verified certificate or header, revocation, and explanations of TLS errors.
//
// Every handshake uses the newest certificates and CAs, from files (Files), Secrets (Store) or SPIFFE (SPIFFESource).
// Invalid material never replaces valid material.
package identity
