package engine

import (
	"slices"
	"strings"
)

// This file lets each side announce the scopes that it knows. A scope that only one side knows is not shared: nothing of
// it is sent, and nothing waits for it. What the replica has stays as it is.

// scopeCapability begins the capability that announces a scope: "scope=application".
const scopeCapability = "scope="

// announceScopes returns the capabilities with those of this side's scopes and, on the hub, of short beacons.
func (p *Peer) announceScopes(capabilities []string) []string {
	out := slices.Clone(capabilities)
	if p.cfg.Hub {
		out = append(out, shortBeacon)
	}
	for _, s := range p.cfg.Scopes {
		out = append(out, scopeCapability+s.Name)
	}
	return out
}

// setShared records which scopes and beacons the other side knows, from its capabilities. A side of a release that does not announce
// scopes knows those without ScopeConfig.Announced.
func (p *Peer) setShared(capabilities []string) {
	p.shortBeacons, p.shortSent = slices.Contains(capabilities, shortBeacon), false
	announces := slices.ContainsFunc(capabilities, func(c string) bool {
		return strings.HasPrefix(c, scopeCapability)
	})
	for _, s := range p.cfg.Scopes {
		known := slices.Contains(capabilities, scopeCapability+s.Name) || !announces && !s.Announced
		if o := p.owners[s.Name]; o != nil {
			o.unshared = !known
		} else {
			p.replicas[s.Name].unshared = !known
		}
	}
}

// unsharedScopes returns the scopes of this side that the other side does not know.
func (p *Peer) unsharedScopes() []string {
	var out []string
	for _, s := range p.cfg.Scopes {
		if o := p.owners[s.Name]; o != nil && o.unshared || o == nil && p.replicas[s.Name].unshared {
			out = append(out, s.Name)
		}
	}
	return out
}
