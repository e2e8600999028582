package kube

import (
	"errors"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Readiness knows which resources the reconcile core has read.
type Readiness struct {
	ready chan struct{}

	mu       sync.Mutex
	readable map[kind.Resource]bool
}

// NewReadiness returns a Readiness before the first input.
func NewReadiness() *Readiness {
	return &Readiness{ready: make(chan struct{}), readable: map[kind.Resource]bool{}}
}

// Ready is closed when all resources were listed or found unreadable. The readable ones are replicated nevertheless.
func (o *Readiness) Ready() <-chan struct{} { return o.ready }

// Follow records an input that the core has processed.
func (o *Readiness) Follow(in reconcile.Input) {
	var r kind.Resource
	readable := false
	switch in := in.(type) {
	case reconcile.List:
		r, readable = in.Resource, true
	case reconcile.Unreadable:
		r = in.Resource
	default:
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.readable)
	o.readable[r] = readable
	if all := len(reconcile.Resources()); before < all && len(o.readable) == all {
		close(o.ready)
	}
}

// Check returns an error if a resource cannot be read.
func (o *Readiness) Check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missing []string
	for _, r := range reconcile.Resources() {
		if !o.readable[r] {
			missing = append(missing, r.Plural)
		}
	}
	if len(missing) > 0 {
		return errors.New("cannot read " + strings.Join(missing, ", "))
	}
	return nil
}
