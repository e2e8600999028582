// Package pki is the certificate authority of an installation, and how clusters
// come to have certificates of it: issuing, signing requests, replacing the
// authority with an overlap, pins, and single-use tokens to join with.
//
// Everything it keeps is in Secrets of the hub's Argo CD namespace, with the
// names that existing installations have. It touches only those that carry its
// mark: what cert-manager or a person has made is read and never written.
//
// Hub is the whole of it, over an interface to Secrets; the functions beside it
// only compute.
package pki
