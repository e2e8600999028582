package principal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// resolve decides what is in force for an agent, and returns what the node has to
// hear. Under mu.
func (r *registry) resolve(agent string) []reconcile.Input {
	before, had := r.agents[agent]
	r.deactivate(agent)
	reg, ok, why := r.declared(agent)
	if ok && why == "" {
		why = r.conflict(reg)
	}
	r.setInvalid(agent, why)
	switch {
	case (!ok || why != "") && !had:
		return nil
	case !ok || why != "":
		return []reconcile.Input{reconcile.Unregister{Agent: agent}}
	}
	r.activate(reg)
	var tell []reconcile.Input
	if had && before.KnownCluster != "" && before.KnownCluster != reg.KnownCluster {
		// A person says that it is another cluster. Whoever is connected has to
		// show again that it is the right one.
		tell = append(tell, reconcile.Unregister{Agent: agent})
		had = false
	}
	if !had || before.Register != reg.Register {
		tell = append(tell, reg.Register)
	}
	if reg.confirm != "" && reg.confirm != before.confirm {
		r.log.Info("confirmed", "agent", agent, "id", reg.confirm)
		tell = append(tell, reconcile.Confirm{Agent: agent, ID: reg.confirm})
	}
	return tell
}

// declared reads what an agent's Agent object says. An agent without a mode has
// not been claimed yet; its first connection does.
func (r *registry) declared(agent string) (reg registration, ok bool, why string) {
	rec, known := r.objects[agent]
	switch {
	case !known:
		return reg, false, ""
	case rec.DeletionTimestamp != nil:
		return reg, false, "its Agent is being deleted"
	}
	secret, has := r.preferredSecret(agent)
	reg, err := rec.registration(r.mapping)
	if err != nil {
		return reg, false, err.Error()
	}
	reg.secret, reg.Agent.Server = defaultSecretName(agent), r.serverOf(agent)
	if has {
		reg.secret, reg.Agent.Project = secret.name, secret.project
		if !secret.createdByPrincipal() && secret.server != "" {
			reg.Agent.Server = secret.server // somebody else has decided on it
		}
	}
	return reg, reg.Agent.Mode != "", ""
}

// serverOf is the URL under which Argo CD knows an agent's cluster.
func (r *registry) serverOf(agent string) string {
	return "https://" + r.proxyAddress + "?agentName=" + agent
}

// setInvalid keeps why a registration is not in force, and says so when it is new.
func (r *registry) setInvalid(agent, why string) {
	if why == "" {
		delete(r.invalid, agent)
		return
	}
	if r.invalid[agent] != why {
		r.log.Warn("this agent is not registered as declared", "agent", agent, "reason", why)
	}
	r.invalid[agent] = why
}

// activate puts a registration into force.
func (r *registry) activate(reg registration) {
	r.agents[reg.Agent.Name] = reg
	if reg.hasNamespace() {
		r.namespaceOwner[reg.Agent.HubNamespace] = reg.Agent.Name
	}
}

// deactivate takes a registration out of force, and notes which namespace is free
// then.
func (r *registry) deactivate(agent string) {
	r.stopWaiting(agent)
	reg, had := r.agents[agent]
	delete(r.agents, agent)
	if had && r.namespaceOwner[reg.Agent.HubNamespace] == agent {
		delete(r.namespaceOwner, reg.Agent.HubNamespace)
		r.releasedNamespaces = append(r.releasedNamespaces, reg.Agent.HubNamespace)
	}
}

// conflict tells why a registration cannot be in force: two agents in one
// namespace would have each other's Applications, and one in Argo CD's own those
// of the hub itself.
func (r *registry) conflict(reg registration) string {
	if !reg.hasNamespace() {
		return ""
	}
	if reg.Agent.HubNamespace == r.namespace && (reg.Agent.Mode == kind.Autonomous || reg.Agent.Name == r.namespace) {
		return fmt.Sprintf("its namespace would be %s, which is that of the hub's Argo CD; set spec.namespace of the Agent to another", r.namespace)
	}
	if other := r.namespaceOwner[reg.Agent.HubNamespace]; other != "" && other != reg.Agent.Name {
		r.waitForNamespace(reg)
		return fmt.Sprintf("its namespace %s is that of agent %s; set spec.namespace of one of the two Agents to another", reg.Agent.HubNamespace, other)
	}
	return ""
}

// waitForNamespace queues an agent for a namespace that another one has.
func (r *registry) waitForNamespace(reg registration) {
	namespace, agent := reg.Agent.HubNamespace, reg.Agent.Name
	if r.namespaceWaiters[namespace] == nil {
		r.namespaceWaiters[namespace] = map[string]bool{}
	}
	r.namespaceWaiters[namespace][agent] = true
	r.waitsFor[agent] = namespace
}

func (r *registry) stopWaiting(agent string) {
	namespace := r.waitsFor[agent]
	delete(r.waitsFor, agent)
	if delete(r.namespaceWaiters[namespace], agent); len(r.namespaceWaiters[namespace]) == 0 {
		delete(r.namespaceWaiters, namespace)
	}
}

// nextNamespaceOwners returns who may have the namespaces that were left, the oldest
// first.
func (r *registry) nextNamespaceOwners() (agents []string) {
	for _, namespace := range r.releasedNamespaces {
		if r.namespaceOwner[namespace] != "" {
			continue // it went back to the same
		}
		var line []agentRecord
		for _, agent := range slices.Sorted(maps.Keys(r.namespaceWaiters[namespace])) {
			line = append(line, r.objects[agent])
		}
		slices.SortFunc(line, compareAgents)
		for _, rec := range line {
			agents = append(agents, rec.Name)
		}
	}
	r.releasedNamespaces = nil
	return agents
}

// denyReasonLocked tells why an agent is not let in, whatever it can show. Under mu.
func (r *registry) denyReasonLocked(agent string) string {
	rec, known := r.objects[agent]
	switch {
	case !known:
		return ""
	case rec.DeletionTimestamp != nil:
		return "this agent was deleted on the hub"
	case rec.retired():
		return "this agent is retired on the hub: its cluster is said to be gone for good"
	case rec.Spec.Suspended:
		return "this agent is suspended on the hub (spec.suspended of its Agent); it is let in again when that is taken back"
	}
	return ""
}
