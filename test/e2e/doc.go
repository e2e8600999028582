// Package e2e tests the binaries of principal and agent in real clusters with real Argo CD. It contains only tests.
//
// A test changes something on the hub or on a spoke, with kubectl or the argocd CLI, and waits for the effect on the
// other side. Most tests share one lab, one principal and one agent of each mode (see shared). Each uses its own names.
// Tests that break a cluster have their own lab.
//
// Tests do not depend on the speed of the machine. They wait for a condition with a generous timeout. To show that
// something does not happen, a test waits for another event that would come later.
package e2e
