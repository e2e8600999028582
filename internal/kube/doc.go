// Package kube connects a node to its cluster's API server: watches become
// inputs, and writes that the node asks for become requests.
//
// Objects pass as the bytes that the API server gave. There is one list and one
// watch for each resource, nothing is read that a watch has, and there is no
// rate limit on this side: the API server has its own. When it says 429, or that
// its disk is full, or nothing at all, the writer slows down until it is well.
package kube
