package kube

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Readiness knows which resources the reconcile core has read.
type Readiness struct {
	ready   chan struct{}
	watches []watched // of the core

	mu       sync.Mutex
	readable map[watched]bool
}

// watched is a resource, or a part of it.
type watched struct {
	resource  kind.Resource
	namespace string // as in reconcile.List
}

func (w watched) String() string {
	if w.namespace == "" {
		return w.resource.Plural
	}
	return w.resource.Plural + " in namespace " + w.namespace
}

// NewReadiness returns a Readiness before the first input, for the watches of the core.
func NewReadiness(watches []Watch) *Readiness {
	r := &Readiness{ready: make(chan struct{}), readable: map[watched]bool{}}
	for _, w := range watches {
		r.watches = append(r.watches, watched{w.Resource, w.part()})
	}
	return r
}

// Ready is closed when all resources were listed or found unreadable. The readable ones are replicated nevertheless.
func (o *Readiness) Ready() <-chan struct{} { return o.ready }

// Follow records an input that the core has processed.
func (o *Readiness) Follow(in reconcile.Input) {
	var w watched
	readable := false
	switch in := in.(type) {
	case reconcile.List:
		if in.More {
			return
		}
		w, readable = watched{in.Resource, in.Namespace}, true
	case reconcile.Unreadable:
		w = watched{in.Resource, in.Namespace}
	default:
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.watches, w) {
		return
	}
	before := len(o.readable)
	o.readable[w] = readable
	if all := len(o.watches); before < all && len(o.readable) == all {
		close(o.ready)
	}
}

// Check returns an error if a resource cannot be read.
func (o *Readiness) Check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missing []string
	for _, w := range o.watches {
		if !o.readable[w] {
			missing = append(missing, w.String())
		}
	}
	if len(missing) > 0 {
		return errors.New("cannot read " + strings.Join(missing, ", "))
	}
	return nil
}
