package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// handling measures how long Applications of the hub take in this agent and in its API server, for the hub.
type handling struct {
	mu      sync.Mutex
	session uint64
	since   map[uint64]time.Time // sequence number of an item → its receipt
}

// maxHandling limits the items that are measured at the same time.
const maxHandling = 4096

// received starts to measure items.
func (h *handling) received(session uint64, m engine.Delta, now time.Time) {
	if m.Scope != kind.ApplicationScope {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != session || h.since == nil {
		h.session, h.since = session, map[uint64]time.Time{}
	}
	for i := range m.Items {
		if len(h.since) < maxHandling {
			h.since[m.Items[i].Seq] = now
		}
	}
}

// acknowledged returns an acknowledgment with the duration of its items.
func (h *handling) acknowledged(session uint64, m engine.Ack, now time.Time) engine.Ack {
	if m.Scope != kind.ApplicationScope {
		return m
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != session {
		return m
	}
	m.Items = slices.Clone(m.Items)
	for i := range m.Items {
		if since, ok := h.since[m.Items[i].Seq]; ok {
			m.Items[i].HandledMillis = max(now.Sub(since).Milliseconds(), 1)
			delete(h.since, m.Items[i].Seq)
		}
	}
	return m
}
