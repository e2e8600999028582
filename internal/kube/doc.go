// Package kube connects a node to its cluster's API server: watches become
// inputs, and writes that the node asks for become requests.
//
// Objects pass as the bytes that the API server gave. There is one list and one
// watch for each resource, nothing is read that a watch has, and there is no
// rate limit on this side: the API server has its own, and when it says 429 the
// node is told how long to wait.
package kube
