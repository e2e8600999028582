package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// resolve decides which registration of an agent is active and returns the resulting inputs. The caller must hold mu.
func (r *Registry) resolve(agent string) []reconcile.Input {
	before, had := r.agents[agent]
	r.deactivate(agent)
	reg, ok, invalid := r.declared(agent)
	if ok && invalid == "" {
		invalid = r.conflict(reg)
	}
	r.setInvalid(agent, invalid)
	switch {
	case (!ok || invalid != "") && !had:
		return nil
	case !ok || invalid != "":
		return []reconcile.Input{reconcile.Unregister{Agent: agent}}
	}
	r.activate(reg)
	var inputs []reconcile.Input
	if had && before.KnownCluster != "" && before.KnownCluster != reg.KnownCluster {
		// A user confirmed another cluster. A connected agent must prove that it is this cluster.
		inputs = append(inputs, reconcile.Unregister{Agent: agent})
		had = false
	}
	if !had || before.Register != reg.Register {
		inputs = append(inputs, reg.Register)
	}
	if reg.confirm != "" && reg.confirm != before.confirm {
		r.cfg.Log.Info("Confirmation received", "agent", agent, "id", reg.confirm)
		inputs = append(inputs, reconcile.Confirm{Agent: agent, ID: reg.confirm})
	}
	return inputs
}

// declared reads the registration in an agent's Agent. An Agent without a mode is not active.
func (r *Registry) declared(agent string) (reg Registration, ok bool, invalid string) {
	rec, known := r.objects[agent]
	switch {
	case !known:
		return reg, false, ""
	case rec.DeletionTimestamp != nil:
		return reg, false, "The Agent is being deleted."
	}
	secret, has := r.preferredSecret(agent)
	reg, err := rec.registration(r.cfg.Mapping, r.cfg.Limits)
	if err != nil {
		return reg, false, err.Error()
	}
	if reg.Agent.Mode == kind.Standby {
		return reg, true, ""
	}
	reg.secret, reg.Agent.Server = defaultSecretName(agent), r.serverOf(agent)
	if has {
		reg.secret, reg.Agent.Project = secret.name, secret.project
		if !secret.createdByPrincipal() && secret.server != "" {
			reg.Agent.Server = secret.server // set by a user
		}
	}
	return reg, reg.Agent.Mode != "", ""
}

// serverOf returns the server URL of an agent's cluster in Argo CD.
func (r *Registry) serverOf(agent string) string {
	return "https://" + r.cfg.ProxyAddress + "?agentName=" + agent
}

func (r *Registry) setInvalid(agent, reason string) {
	if reason == "" {
		delete(r.invalid, agent)
		return
	}
	if r.invalid[agent] != reason {
		r.cfg.Log.Warn("Agent is invalid", "agent", agent, "reason", reason)
	}
	r.invalid[agent] = reason
}

func (r *Registry) activate(reg Registration) {
	r.agents[reg.Agent.Name] = reg
	if reg.hasNamespace() {
		r.namespaceOwner[reg.Agent.HubNamespace] = reg.Agent.Name
	}
}

func (r *Registry) deactivate(agent string) {
	reg, had := r.agents[agent]
	delete(r.agents, agent)
	if had && r.namespaceOwner[reg.Agent.HubNamespace] == agent {
		delete(r.namespaceOwner, reg.Agent.HubNamespace)
		r.releasedNamespaces = append(r.releasedNamespaces, reg.Agent.HubNamespace)
	}
}

// conflict returns why a registration cannot be active. Two agents in one namespace would share Applications, and an agent
// in the Argo CD namespace would own those of the hub. If Applications are not read in all namespaces, those of an agent
// elsewhere would seem to be gone.
func (r *Registry) conflict(reg Registration) string {
	switch {
	case len(r.cfg.Namespaces) == 0 || reg.Agent.Mode == kind.Standby:
	case !reg.hasNamespace():
		return "The principal runs with --namespaced, and the Agent is mapped by destination. Set spec.mapping of the Agent to namespace."
	case !slices.Contains(r.cfg.Namespaces, reg.Agent.HubNamespace):
		return fmt.Sprintf("The principal runs with --namespaced and does not read namespace %s. Add it to --allowed-namespaces and create the Role there.", reg.Agent.HubNamespace)
	}
	if !reg.hasNamespace() {
		return ""
	}
	if reg.Agent.HubNamespace == r.cfg.Namespace && (reg.Agent.Mode == kind.Autonomous || reg.Agent.Name == r.cfg.Namespace) {
		return fmt.Sprintf("Namespace %s is the Argo CD namespace of the hub. Set spec.namespace of the Agent to another namespace.", r.cfg.Namespace)
	}
	if other := r.namespaceOwner[reg.Agent.HubNamespace]; other != "" && other != reg.Agent.Name {
		return fmt.Sprintf("Namespace %s belongs to agent %s. Set spec.namespace of one of the two Agents to another namespace.", reg.Agent.HubNamespace, other)
	}
	return ""
}

// nextNamespaceOwners returns the agents that wait for the released namespaces, the oldest first. They are invalid until
// then.
func (r *Registry) nextNamespaceOwners() (agents []string) {
	for _, namespace := range r.releasedNamespaces {
		if r.namespaceOwner[namespace] != "" {
			continue // it has an owner again
		}
		var waiters []agentRecord
		for agent := range r.invalid {
			if rec := r.objects[agent]; rec.namespaceOnHub() == namespace && rec.DeletionTimestamp == nil {
				waiters = append(waiters, rec)
			}
		}
		slices.SortFunc(waiters, compareAgents)
		for _, rec := range waiters {
			agents = append(agents, rec.Name)
		}
	}
	r.releasedNamespaces = nil
	return agents
}

// updateSecret applies a cluster Secret, unless a newer version is known.
func (r *Registry) updateSecret(ctx context.Context, o *kind.Object) error {
	return r.applyChange(ctx, func() []string { return r.putSecret(o) })
}

func (r *Registry) putSecret(o *kind.Object) (touched []string) {
	s := readSecret(o)
	before, known := r.secrets[s.name]
	if known && before.revision >= s.revision {
		return nil
	}
	if known && before.agent != s.agent {
		touched = append(touched, r.dropSecret(s.name, s.revision)...)
	}
	r.secrets[s.name] = s
	if r.secretsOf[s.agent] == nil {
		r.secretsOf[s.agent] = map[string]bool{}
	}
	r.secretsOf[s.agent][s.name] = true
	return append(touched, s.agent)
}

func (r *Registry) dropSecret(name string, revision uint64) []string {
	s, known := r.secrets[name]
	if !known || s.revision > revision {
		return nil
	}
	delete(r.secrets, name)
	if delete(r.secretsOf[s.agent], name); len(r.secretsOf[s.agent]) == 0 {
		delete(r.secretsOf, s.agent)
	}
	return []string{s.agent}
}

// preferredSecret returns the cluster Secret of an agent. Of several it is the one with the default name, or the first by
// name, so that all principal replicas choose the same. The caller must hold mu.
func (r *Registry) preferredSecret(agent string) (best clusterSecret, ok bool) {
	for name := range r.secretsOf[agent] {
		if !ok || name == defaultSecretName(agent) || best.name != defaultSecretName(agent) && name < best.name {
			best, ok = r.secrets[name], true
		}
	}
	return best, ok
}

func (r *Registry) secretNames(agent string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.secretsOf[agent]))
}
