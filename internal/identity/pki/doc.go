// Package pki is the certificate authority of the hub: it issues certificates, signs requests, rotates the CA with an
// overlap, and creates single-use join tokens.
//
// It stores everything in Secrets of the hub's Argo CD namespace. It writes only Secrets with its label. It reads Secrets
// of cert-manager or of a user and never writes them.
package pki
