package sim

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about processes of another release than the others.

var skewActions = []actionType{
	{name: "version skew", weight: 4, fault: true, rare: 15, do: versionSkew},
}

// release is which one a process is of.
type release uint8

const (
	current release = iota
	older           // knows neither the fields that were added last, nor settings, and announces no scopes
	newer           // speaks one version more of everything
	tooNew          // does not support today's versions
	releases
)

// versionSkew rolls out another release of a principal or of an agent.
func versionSkew(w *world, a action) {
	p, _ := pick(w.processes(), a.n[0])
	p.release = release(a.n[1] % uint32(releases))
	w.tracef("%s: is rolled out as release %d", p.name, p.release)
	p.restartIn(second + span(a.n[2])/20)
}

// translate converts a message of this process for others, or the other way round: an older release neither sends nor
// sees what was added last. An agent sends the versions that it supports.
func (p *process) translate(m engine.Message) engine.Message {
	switch m := m.(type) {
	case engine.Hello:
		switch p.release {
		case newer:
			m.Protocol.Max++
			m.Projection.Max++
		case tooNew:
			m.Protocol.Min, m.Protocol.Max = engine.ProtocolMax+1, engine.ProtocolMax+2
		}
		if p.release == older {
			m.Capabilities = withoutScopes(m.Capabilities)
		}
		return m
	case engine.Welcome:
		if p.release == older {
			m.Capabilities = withoutScopes(m.Capabilities)
		}
		return m
	case engine.Delta:
		if p.release == older {
			m.Items = slices.Clone(m.Items)
			for i := range m.Items {
				m.Items[i].DeletedUID = ""
			}
		}
		return m
	}
	return m
}

func withoutScopes(capabilities []string) []string {
	return slices.DeleteFunc(slices.Clone(capabilities), func(c string) bool { return strings.HasPrefix(c, "scope=") || c == "short-beacon" })
}

// kinds returns the kinds that the release of this process replicates.
func (p *process) kinds() []kind.Kind {
	return slices.DeleteFunc(p.w.kinds(), func(k kind.Kind) bool { return p.release == older && k.Traits().Announced })
}
