package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Upgrades sends spec.upgrade of Agents to agents that have reported in their session what they do about upgrades. Other
// agents do not know the message. The agent decides, and handles each ID once, so that a request may be repeated.
type Upgrades struct {
	registry *Registry
	send     func(agent string, epoch engine.Epoch, m engine.Upgrade)

	mu     sync.Mutex
	states map[string]upgradeState // by agent; at most one per open connection

	reported logonce.Last[agentPhase] // ID of the upgrade
}

type upgradeState struct {
	epoch    engine.Epoch // of the session
	reported engine.UpgradeState
	sent     v1alpha1.Upgrade // request of this session
}

// NewUpgrades returns Upgrades without sessions. send must not block.
func NewUpgrades(registry *Registry, send func(agent string, epoch engine.Epoch, m engine.Upgrade)) *Upgrades {
	u := &Upgrades{registry: registry, send: send, states: map[string]upgradeState{}}
	registry.OnChange(u.request)
	return u
}

// Received records what an agent reported in a session, and sends it the request of its Agent. It reports whether this is a
// phase of the requested upgrade that the agent has not reported before, so that a hostile agent causes few log lines.
func (u *Upgrades) Received(agent string, epoch engine.Epoch, m engine.UpgradeState) (changed bool) {
	u.mu.Lock()
	s := u.states[agent]
	if s.epoch.Newer(epoch) {
		u.mu.Unlock()
		return false
	}
	if s.epoch != epoch {
		s = upgradeState{epoch: epoch}
	}
	s.reported = m
	u.states[agent] = s
	u.mu.Unlock()
	u.request(agent)
	object, known := u.registry.Agent(agent)
	return known && object.Spec.Upgrade != nil && m.ID != "" && m.ID == object.Spec.Upgrade.ID &&
		slices.Contains(upgradePhases, m.Phase) && u.reported.Changed(agentPhase{agent, m.Phase}, m.ID)
}

// Forget forgets which phases a deleted Agent has reported.
func (u *Upgrades) Forget(agent string) {
	for _, phase := range upgradePhases {
		u.reported.Reset(agentPhase{agent, phase})
	}
}

// agentPhase is a phase that an agent reported.
type agentPhase struct{ agent, phase string }

var upgradePhases = []string{v1alpha1.UpgradeRefused, v1alpha1.UpgradeWaiting, v1alpha1.UpgradePreparing, v1alpha1.UpgradeUpgrading,
	v1alpha1.UpgradeSucceeded, v1alpha1.UpgradeRolledBack, v1alpha1.UpgradeFailed}

// Closed removes what an agent reported in a session.
func (u *Upgrades) Closed(agent string, epoch engine.Epoch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.states[agent].epoch == epoch {
		delete(u.states, agent)
	}
}

// request sends the request of an Agent if its session does not have it.
func (u *Upgrades) request(agent string) {
	object, known := u.registry.Agent(agent)
	if !known || object.Spec.Upgrade == nil {
		return
	}
	wanted := *object.Spec.Upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	s, connected := u.states[agent]
	if !connected || s.sent == wanted {
		return
	}
	s.sent = wanted
	u.states[agent] = s
	timeout, _ := time.ParseDuration(wanted.Timeout) // the agent refuses 0
	u.send(agent, s.epoch, engine.Upgrade{ID: wanted.ID, Version: wanted.Version, Repository: wanted.Repository, Digest: wanted.Digest, TimeoutMillis: timeout.Milliseconds()})
}

// status returns what an agent reported in a session; nil: nothing.
func (u *Upgrades) status(agent string, epoch engine.Epoch) *v1alpha1.UpgradeStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.states[agent]
	if !ok || s.epoch != epoch {
		return nil
	}
	return &v1alpha1.UpgradeStatus{ID: s.reported.ID, Phase: conditionReason(s.reported.Phase), Message: text.Truncate(OneLine(s.reported.Message), 1024)}
}
