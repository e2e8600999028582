package principal

import (
	"context"
	"os"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// This file connects what is about Agents with the rest of the principal: the
// registry knows them, the keeper keeps what is derived from them, the reporter
// writes their status.

// parallelReconciles is how many agents are tended at once.
const parallelReconciles = 8

// assembleAgents makes all of it. Nothing happens until it runs.
func (p *principal) assembleAgents(ctx context.Context, n *reconcile.Reconciler) {
	p.registry = (&registry{ctx: ctx, client: p.client, namespace: p.cfg.Namespace, mapping: p.cfg.Mapping, proxyAddress: p.cfg.ResourceProxy,
		post: p.runner.Post, closeConns: p.closeConns, changed: p.agentChanged, revoked: p.blocklists.RevokedNow, log: p.log}).prepare()
	p.agents = &agentReconciler{registry: p.registry, client: p.client, namespace: p.cfg.Namespace, clusterConfig: p.clusterConfig(), blocklists: p.blocklists,
		certificates: p.certificates, statusChanged: func(agent string) { p.status.check(agent) }, log: p.log, secretErrors: map[string]string{}, checkedConfig: map[string]string{}}
	p.agents.requeue = func(agent string) { p.agentQueue.add(agent) }
	p.agents.deleted = func(rec agentRecord) { p.shared.deleted(rec) }
	p.agentQueue = (&workQueue{what: "cluster Secret", do: p.agents.reconcile, parallel: parallelReconciles, log: p.log}).prepare()
	p.fleet = &fleetHolds{client: p.client, namespace: p.cfg.Namespace, tasks: p.tasks, post: p.runner.Post, withReconciler: p.runner.Do,
		others: func() (reconcile.FleetOthers, bool) { return p.replicas.others() }, jitter: p.cfg.Jitter, log: p.log}
	p.replicas = newReplicas(p.client, p.cfg.Namespace, p.replica(), p.cfg.ReplicaAddress, p.fleet.now, p.log)
	p.status = (&statusWriter{client: p.client, registry: p.registry, namespace: p.cfg.Namespace, replica: p.replica(),
		withReconciler: p.runner.Do, secretError: p.agents.clusterSecretError, writeOutage: p.agentOutages.get, hello: p.helloOf, replicaAlive: p.replicas.alive, fleetStatus: p.fleet.now, log: p.log}).prepare()
	p.finalizers = (&finalizerRemover{client: p.client, registry: p.registry, reconciler: n, withReconciler: p.runner.Do, log: p.log}).prepare()
}

// agentChanged has everybody look at an agent about whom something has changed.
func (p *principal) agentChanged(agent string) {
	p.agentQueue.add(agent)
	p.status.check(agent)
	p.finalizers.agentChanged(agent)
	p.live.agentChanged(agent)
	p.closeOlderSessions(agent)
}

// closeOlderSessions ends sessions of an agent when it has a newer one with another principal.
// Here it would go on until its connection is found to be dead, and both would write.
func (p *principal) closeOlderSessions(agent string) {
	for _, c := range p.connsOf(agent) {
		g, greeted := p.sessions.hello(c.ID)
		if !greeted {
			continue
		}
		if other := p.newerSessionHolder(agent, g.epoch); other != "" {
			c.CloseAfter(engine.Superseded, supersededBy(other), supersededRetry)
		}
	}
}

// newerSessionHolder names the other principal that is connected with a newer session of an
// agent than this one; empty: there is none. One that is no more is not waited for.
func (p *principal) newerSessionHolder(agent string, epoch engine.Epoch) string {
	rec, known, _, _ := p.registry.object(agent)
	s := rec.Status
	if !known || !s.Connected || s.Session == nil || s.Principal == p.replica() || !p.replicas.alive(s.Principal) {
		return ""
	}
	if !(engine.Epoch{Incarnation: s.Session.Incarnation, Attempt: s.Session.Attempt}).Newer(epoch) {
		return ""
	}
	return s.Principal
}

// agentRuns lists what has to run.
func (p *principal) agentRuns() map[string]func(context.Context) error {
	runs := map[string]func(context.Context) error{
		"cluster Secrets":    p.afterRegistrations(p.agentQueue.run),
		"statuses of agents": p.afterRegistrations(p.status.queue.run),
		"state of agents":    p.afterRegistrations(p.status.run),
		"age of credentials": p.afterRegistrations(p.agents.run),
		"Lease":              p.replicas.run,
		"other principals":   kube.NewWatcher(p.client, p.replicas.watch(), p.replicas.apply, p.log, p.cfg.Jitter).Run,
		"retired agents":     p.afterRegistrations(p.finalizers.scans.run),
		"what they leave":    p.afterRegistrations(p.finalizers.removals.run),
	}
	for _, w := range p.registry.watches() {
		runs["registrations in "+w.Resource.Plural] = kube.NewWatcher(p.client, w, p.registry.apply, p.log, p.cfg.Jitter).Run
	}
	return runs
}

// afterRegistrations runs something as soon as all registrations are known: before
// that, what is there would seem to be missing.
func (p *principal) afterRegistrations(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-p.registry.ready:
		}
		return run(ctx)
	}
}

// replica is what this principal is called among others.
func (p *principal) replica() string {
	if p.cfg.Replica != "" {
		return p.cfg.Replica
	}
	name, err := os.Hostname()
	if err != nil {
		return "principal"
	}
	return name
}

// clusterConfig is what fills in the credentials of cluster Secrets.
func (p *principal) clusterConfig() ClusterConfig {
	if p.cfg.Live.Resource == nil {
		return nil // nobody would ask for them
	}
	if p.cfg.Live.Access == nil && p.issuer != nil {
		return p.issuer
	}
	if p.cfg.Live.Access == nil {
		return nil
	}
	return p.cfg.Live.Access
}

// suspendedRetry is when an agent that is not let in may ask again.
const suspendedRetry = 10 * time.Second

// closeConns ends the connections of an agent that is not let in any more.
func (p *principal) closeConns(agent, why string) {
	for _, c := range p.connsOf(agent) {
		c.CloseAfter(engine.Revoked, why, suspendedRetry)
	}
}

func (p *principal) connsOf(agent string) []*transport.Conn {
	if server := p.server.Load(); server != nil {
		return server.ConnsOf(agent)
	}
	return nil
}

// certificates lists by fingerprint those that an agent is connected with here,
// and when they expire.
func (p *principal) certificates(agent string) map[string]time.Time {
	all := map[string]time.Time{}
	for _, c := range p.connsOf(agent) {
		if c.Fingerprint != "" {
			all[c.Fingerprint] = c.NotAfter
		}
	}
	return all
}

// helloInfo is what an agent has shown and said at the beginning of a connection.
type helloInfo struct {
	epoch       engine.Epoch
	cluster     string
	fingerprint string
	expires     time.Time
	skew        *int64 // of its clock, in seconds; nil: it has not said
}

// helloOf finds the greeting of a session.
func (p *principal) helloOf(agent string, epoch engine.Epoch) (helloInfo, bool) {
	for _, c := range p.connsOf(agent) {
		if g, ok := p.sessions.hello(c.ID); ok && g.epoch == epoch {
			return g, true
		}
	}
	return helloInfo{}, false
}

// claimedClusterUID finds the cluster of the agent that greeted last, which may not be
// the one that is known.
func (p *principal) claimedClusterUID(agent string) string {
	last := ""
	for _, c := range p.connsOf(agent) {
		if g, ok := p.sessions.hello(c.ID); ok {
			last = g.cluster
		}
	}
	return last
}
