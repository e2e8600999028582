package transport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// An agent says in its Hello which tunnels it serves, so that the hub asks for no
// other: "tunnels=api,redis", or "tunnels=" where live access is switched off. One
// of a release before that says nothing, and is asked.
const offerCapability = "tunnels="

// maxOffer is what a capability may have on the wire.
const maxOffer = 64

// offerOf is what an agent says; nothing where it would be too long.
func offerOf(handlers map[string]TunnelHandler) string {
	targets := make([]string, 0, len(handlers))
	for target := range handlers {
		targets = append(targets, target)
	}
	slices.Sort(targets)
	if offer := offerCapability + strings.Join(targets, ","); len(offer) <= maxOffer {
		return offer
	}
	return ""
}

// withOffer adds what an agent says to its Hello. The list of whoever made the
// Hello stays as it is.
func withOffer(m engine.Hello, offer string) engine.Hello {
	if offer != "" {
		m.Capabilities = append(slices.Clip(m.Capabilities), offer)
	}
	return m
}

// recordOffer notes what an agent serves.
func (b *tunnelPool) recordOffer(m engine.Hello) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offerReceived, b.offer = false, nil
	for _, capability := range m.Capabilities {
		if list, ok := strings.CutPrefix(capability, offerCapability); ok {
			b.offerReceived, b.offer = true, strings.Split(list, ",")
		}
	}
}

// serves fails for a target that the agent is known not to serve.
func (b *tunnelPool) serves(target string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.offerReceived && !slices.Contains(b.offer, target) {
		b.counters.refuse(refusedTunnelAgent)
		return &TunnelError{Agent: b.conn.Agent, Target: target, Reason: notServed(target)}
	}
	return nil
}

// notServed is the reason of either end.
func notServed(target string) string { return fmt.Sprintf("the agent has no tunnels to %q", target) }
