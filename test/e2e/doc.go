// Package e2e tells how principal and agent behave as programs, in real clusters with real Argo CD. It has tests only.
//
// The tests read as the story they tell: something is done on the hub or on a spoke, with kubectl's means or with the
// argocd CLI, and something becomes true on the other side. Most share one lab, one principal and one agent of each mode
// (see shared); each uses names of its own. Those that break a cluster have a lab of their own.
//
// Nothing here depends on how fast the machine is: a test waits for a condition, and for as long as a machine can be
// slow. Where it has to show that something does not happen, it waits for something else that would have come later.
package e2e
