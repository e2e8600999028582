// Package kube connects the reconcile core to the API server of its cluster: watch events become inputs, and writes
// that the core returns become requests.
//
// Objects keep the bytes that the API server sent. Parts of a process that need the same objects share one watch. There is
// no client-side rate limit. If the API server answers 429, its storage is full, or it is unreachable, the writer reduces
// concurrency.
package kube
