package principal

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

// settle decides what is in force for an agent, and returns what the node has to
// hear. Under mu.
func (r *registry) settle(agent string) []node.Input {
	before, had := r.agents[agent]
	reg, ok := r.chosen(agent)
	delete(r.agents, agent)
	why := ""
	if ok {
		why = r.conflict(reg)
	}
	r.note(agent, reg, why)
	switch {
	case (!ok || why != "") && !had:
		return nil
	case !ok || why != "":
		return []node.Input{node.Unregister{Agent: agent}}
	}
	r.agents[agent] = reg
	var tell []node.Input
	if had && before.KnownCluster != "" && before.KnownCluster != reg.KnownCluster {
		// A person says that it is another cluster. Whoever is connected has to
		// show again that it is the right one.
		tell = append(tell, node.Unregister{Agent: agent})
		had = false
	}
	if !had || before.Register != reg.Register {
		tell = append(tell, reg.Register)
	}
	if reg.confirm != "" && reg.confirm != before.confirm {
		r.log.Info("confirmed", "agent", agent, "id", reg.confirm)
		tell = append(tell, node.Confirm{Agent: agent, ID: reg.confirm})
	}
	return tell
}

// note keeps why a registration is not in force, and says so when it is new.
func (r *registry) note(agent string, reg registration, why string) {
	if why == "" {
		delete(r.refused, agent)
		return
	}
	if r.refused[agent] != why {
		r.log.Warn("this registration is not in force", "agent", agent, "secret", reg.secret, "reason", why)
	}
	r.refused[agent] = why
}

// chosen returns what is registered for an agent. Of several Secrets the one
// with the usual name counts, else the first: every replica chooses the same. A
// Secret without a mode is not claimed yet; the agent's first connection does.
func (r *registry) chosen(agent string) (best registration, ok bool) {
	for name, reg := range r.secrets {
		if reg.Agent.Name != agent || reg.Agent.Mode == "" {
			continue
		}
		usual := "cluster-" + agent
		if !ok || name == usual || best.secret != usual && name < best.secret {
			best, ok = reg, true
		}
	}
	return best, ok
}

// conflict tells why a registration can not be in force: two agents in one
// namespace would have each other's Applications, and one in Argo CD's own those
// of the hub itself.
func (r *registry) conflict(reg registration) string {
	if !r.hasNamespace(reg) {
		return ""
	}
	if reg.Agent.HubNamespace == r.namespace && (reg.Agent.Mode == kind.Autonomous || reg.Agent.Name == r.namespace) {
		return fmt.Sprintf("its namespace would be %s, which is that of the hub's Argo CD; set annotation %s to another", r.namespace, namespaceAnnotation)
	}
	for name, other := range r.agents {
		if name != reg.Agent.Name && r.hasNamespace(other) && other.Agent.HubNamespace == reg.Agent.HubNamespace {
			return fmt.Sprintf("its namespace %s is that of agent %s; set annotation %s of one of the two to another", reg.Agent.HubNamespace, name, namespaceAnnotation)
		}
	}
	return ""
}

// hasNamespace tells whether an agent's Applications are those of a namespace.
func (r *registry) hasNamespace(reg registration) bool {
	return r.mapping == kind.ByNamespace || reg.Agent.Mode == kind.Autonomous
}
