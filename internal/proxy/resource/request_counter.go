package resource

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// RequestCounter counts requests by what they were and what became of them. Its zero value is ready.
type RequestCounter struct {
	mu         sync.Mutex
	requests   map[countKey]uint64
	firstBytes time.Duration
	responses  uint64
	cached     uint64
}

// countKey is what requests have in common that are counted together.
type countKey struct{ verb, code, by string }

// Observe counts a request.
func (t *RequestCounter) Observe(o RequestResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests == nil {
		t.requests = map[countKey]uint64{}
	}
	t.requests[countKey{verb: cmp.Or(o.Request.Verb, "document"), code: strconv.Itoa(o.Code), by: o.Setting}]++
	if o.FirstByte > 0 {
		t.firstBytes += o.FirstByte
		t.responses++
	}
	if o.FromCache {
		t.cached++
	}
}

// Each passes every count on, always in the same order: the verb of Kubernetes, or "document" for discovery and other
// paths; the code of HTTP, or "0" if the caller went away before there was an answer; the setting that refused it, if one
// did.
func (t *RequestCounter) Each(f func(verb, code, refusedBy string, n uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]countKey, 0, len(t.requests))
	for c := range t.requests {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b countKey) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.code, b.code), cmp.Compare(a.by, b.by))
	})
	for _, c := range all {
		f(c.verb, c.code, c.by, t.requests[c])
	}
}

// FirstBytes is how long the first bytes of answers took, all together, and how many answers there were.
func (t *RequestCounter) FirstBytes() (total time.Duration, answers uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.firstBytes, t.responses
}

// Cached is how many requests were answered from the last known copy.
func (t *RequestCounter) Cached() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cached
}
