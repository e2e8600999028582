package tunnel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An agent lists in its Hello which targets it serves, so that the hub requests no other: "tunnels=api,redis", or
// "tunnels=" where live access is disabled. An agent of an older release lists nothing and receives all requests.
const offerCapability = "tunnels="

// maxOffer is the maximum length of a capability on the wire.
const maxOffer = 64

// Offer returns the capability that lists the targets of these handlers, or "" if it would be too long.
func Offer(handlers map[string]Handler) string {
	if offer := offerCapability + strings.Join(slices.Sorted(maps.Keys(handlers)), ","); len(offer) <= maxOffer {
		return offer
	}
	return ""
}

// RecordOffer records the targets that an agent lists among its capabilities.
func (p *Pool) RecordOffer(capabilities []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offerReceived, p.offer = false, nil
	for _, capability := range capabilities {
		if list, ok := strings.CutPrefix(capability, offerCapability); ok {
			p.offerReceived, p.offer = true, strings.Split(list, ",")
		}
	}
}

// checkServed returns an error for a target that the agent does not serve.
func (p *Pool) checkServed(target string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offerReceived && !slices.Contains(p.offer, target) {
		p.cfg.Refuse(agentRefused)
		return &AgentError{Agent: p.peer.Agent, Target: target, Reason: notServed(target)}
	}
	return nil
}

// notServed is the reason on both sides.
func notServed(target string) string { return fmt.Sprintf("the agent has no tunnels to %q", target) }
