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

// parallelKeeping is how many agents are tended at once.
const parallelKeeping = 8

// assembleAgents makes all of it. Nothing happens until it runs.
func (p *principal) assembleAgents(ctx context.Context, n *reconcile.Reconciler) {
	p.registry = (&registry{ctx: ctx, client: p.client, namespace: p.cfg.Namespace, mapping: p.cfg.Mapping, proxy: p.cfg.ResourceProxy,
		post: p.host.Post, cut: p.cutAgent, touched: p.agentTouched, revoked: p.blocklists.revokedNow, log: p.log}).prepare()
	p.keeper = &agentReconciler{registry: p.registry, client: p.client, namespace: p.cfg.Namespace, config: p.clusterConfig(), lists: p.blocklists,
		certificates: p.certificates, changed: func(agent string) { p.reporter.check(agent) }, log: p.log, secretErrors: map[string]string{}, good: map[string]string{}}
	p.keeper.again = func(agent string) { p.agentQueue.add(agent) }
	p.keeper.gone = func(rec agentRecord) { p.shared.deleted(rec) }
	p.agentQueue = (&workQueue{what: "cluster Secret", do: p.keeper.reconcile, parallel: parallelKeeping, log: p.log}).prepare()
	p.fleet = &fleetHolds{client: p.client, namespace: p.cfg.Namespace, chores: p.chores, post: p.host.Post, host: p.host.Do,
		others: func() (reconcile.FleetOthers, bool) { return p.replicas.others() }, jitter: p.cfg.Jitter, log: p.log}
	p.replicas = newReplicas(p.client, p.cfg.Namespace, p.replica(), p.cfg.ReplicaAddress, p.fleet.now, p.log)
	p.reporter = (&statusWriter{client: p.client, registry: p.registry, namespace: p.cfg.Namespace, replica: p.replica(),
		host: p.host.Do, trouble: p.keeper.clusterSecretError, writeOutage: p.agentOutages.get, greeting: p.greetingOf, alive: p.replicas.alive, fleet: p.fleet.now, log: p.log}).prepare()
	p.releaser = (&finalizerRemover{client: p.client, registry: p.registry, node: n, host: p.host.Do, log: p.log}).prepare()
}

// agentTouched has everybody look at an agent about whom something has changed.
func (p *principal) agentTouched(agent string) {
	p.agentQueue.add(agent)
	p.reporter.check(agent)
	p.releaser.touched(agent)
	p.live.touched(agent)
	p.cutOlder(agent)
}

// cutOlder ends sessions of an agent when it has a newer one with another principal.
// Here it would go on until its connection is found to be dead, and both would write.
func (p *principal) cutOlder(agent string) {
	for _, c := range p.connsOf(agent) {
		g, greeted := p.sessions.heard(c.ID)
		if !greeted {
			continue
		}
		if other := p.newer(agent, g.epoch); other != "" {
			c.CloseAfter(engine.Superseded, supersededBy(other), supersededAgain)
		}
	}
}

// newer names the other principal that is connected with a newer session of an
// agent than this one; empty: there is none. One that is no more is not waited for.
func (p *principal) newer(agent string, epoch engine.Epoch) string {
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
		"cluster Secrets":    p.onceRegistered(p.agentQueue.run),
		"statuses of agents": p.onceRegistered(p.reporter.errands.run),
		"state of agents":    p.onceRegistered(p.reporter.run),
		"age of credentials": p.onceRegistered(p.keeper.run),
		"Lease":              p.replicas.run,
		"other principals":   kube.NewWatcher(p.client, p.replicas.watch(), p.replicas.take, p.log, p.cfg.Jitter).Run,
		"retired agents":     p.onceRegistered(p.releaser.scans.run),
		"what they leave":    p.onceRegistered(p.releaser.releases.run),
	}
	for _, w := range p.registry.watches() {
		runs["registrations in "+w.Resource.Plural] = kube.NewWatcher(p.client, w, p.registry.take, p.log, p.cfg.Jitter).Run
	}
	return runs
}

// onceRegistered runs something as soon as all registrations are known: before
// that, what is there would seem to be missing.
func (p *principal) onceRegistered(run func(context.Context) error) func(context.Context) error {
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
	if p.cfg.ClusterConfig != nil {
		return p.cfg.ClusterConfig
	}
	if p.cfg.Live.Resource == nil {
		return nil // nobody would ask for them
	}
	if p.cfg.Live.Access == nil && p.issuer != nil {
		return p.issuer.clusterConfig()
	}
	return p.cfg.Live.Access.clusterConfig()
}

// suspendedAgain is when an agent that is not let in may ask again.
const suspendedAgain = 10 * time.Second

// cutAgent ends the connections of an agent that is not let in any more.
func (p *principal) cutAgent(agent, why string) {
	for _, c := range p.connsOf(agent) {
		c.CloseAfter(engine.Revoked, why, suspendedAgain)
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

// greetingOf finds the greeting of a session.
func (p *principal) greetingOf(agent string, epoch engine.Epoch) (helloInfo, bool) {
	for _, c := range p.connsOf(agent) {
		if g, ok := p.sessions.heard(c.ID); ok && g.epoch == epoch {
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
		if g, ok := p.sessions.heard(c.ID); ok {
			last = g.cluster
		}
	}
	return last
}
