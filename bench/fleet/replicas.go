package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// service selects a principal replica at random for each connection, as a Kubernetes Service does.
type service struct {
	mu        sync.Mutex
	addresses []string // if empty, the address of the caller is used
}

func (s *service) set(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = addresses
}

func (s *service) address(other string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.addresses) == 0 {
		return other
	}
	return s.addresses[rand.IntN(len(s.addresses))]
}

// dialer returns a dialer through the service.
func (s *service) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, s.address(address))
	}
}

// replicaSet has all principal replicas.
type replicaSet struct {
	all       []*product.Program
	addresses []string
	pprofs    []int // ports
}

// startReplicas starts the other principal replicas. Agents that connect then get any of them.
func (b *bench) startReplicas(ctx context.Context) error {
	r := &replicaSet{[]*product.Program{b.product.Principal}, []string{b.product.Address()}, []int{b.pprof}}
	for i := 1; i < b.principals; i++ {
		port, err := b.lab.Port(ctx)
		if err != nil {
			return err
		}
		p, address, err := b.product.StartReplica(ctx, fmt.Sprint("replica-", i+1), "--require-registration=false", "--pprof-port", strconv.Itoa(port))
		if err != nil {
			return err
		}
		r.all, r.addresses, r.pprofs = append(r.all, p), append(r.addresses, address), append(r.pprofs, port)
	}
	b.fleet.service.set(r.addresses...)
	b.replicaSet = r
	return nil
}

// scaleOut starts the other replicas while all agents are connected to the first one, and waits until they are spread.
func (b *bench) scaleOut(ctx context.Context) error {
	var err error
	if b.served, err = living(ctx, b.pprof); err != nil {
		return err
	}
	b.Add("principals: live memory of one that serves all agents", b.served/1e6, "MB")
	requests, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	if err := b.startReplicas(ctx); err != nil {
		return err
	}
	began := time.Now()
	if _, err := b.spread(ctx); err != nil {
		return err
	}
	b.AtMost(spreadTarget(b.agents).Seconds(), fmt.Sprintf("%d principals, all agents on one: spread after", b.principals), time.Since(began).Seconds(), "s")
	moved, err := b.product.Principal.Metric(ctx, "argocd_agent_principal_agents_moved_total")
	if err != nil {
		return err
	}
	b.Add("principals: agents asked to connect again", moved, "")
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	// The status of an Agent names its replica. Fifty are written per second, and each replica looks every ten seconds.
	pause(ctx, 30*time.Second+time.Duration(b.agents)*25*time.Millisecond)
	now, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	b.Add("principals: writes at the API server for each agent that moved", (now.writes-requests.writes)/max(1, moved), "")
	return nil
}

// replicas measures several principal replicas, and kills the last one.
func (b *bench) replicas(ctx context.Context) error {
	if b.replicaSet == nil {
		if err := b.scaleOut(ctx); err != nil {
			return err
		}
	}
	counts, err := b.spread(ctx)
	if err != nil {
		return err
	}
	b.Add("principals: sessions of the replica with the most", slices.Max(counts), "")
	b.Add("principals: sessions of the replica with the fewest", slices.Min(counts), "")
	if err := b.waitAllInSync(ctx); err != nil {
		return err
	}
	// After two minutes a replica drops the content of Applications of other replicas, of 500 agents in ten seconds.
	if err := b.resting(ctx, b.replicaSet.all, 2*time.Minute+time.Duration(b.agents)*20*time.Millisecond); err != nil {
		return err
	}
	sum := 0.0
	for i, p := range b.replicaSet.all {
		alive, err := living(ctx, b.replicaSet.pprofs[i])
		if err != nil {
			return err
		}
		if b.profiles != "" {
			if err := saveProfile(ctx, b.replicaSet.pprofs[i], "heap", filepath.Join(b.profiles, fmt.Sprintf("replica-%d.heap.pprof", i+1))); err != nil {
				return err
			}
		}
		sum += alive
		b.Add(fmt.Sprintf("principals: live memory of replica %d", i+1), alive/1e6, "MB")
		b.Add(fmt.Sprintf("principals: memory of replica %d", i+1), float64(p.Status().Memory)/1e6, "MB RSS")
	}
	if replicas, agents := float64(len(counts)), float64(b.agents); b.served > 0 {
		b.Add("principals: live memory that a replica saves for each agent of the others", (b.served-sum/replicas)/1e3/(agents-agents/replicas), "kB")
	}
	return b.killReplica(ctx)
}

// spreadTarget returns within which time agents spread over the replicas. It does not grow with their number, except once.
func spreadTarget(agents int) time.Duration {
	if agents <= 1000 {
		return 5 * time.Minute
	}
	return 10 * time.Minute
}

// leastRate is half of the handshakes per second in BENCHMARKS.md.
const leastRate = 207.0 / 2

// returnTarget returns within which time the agents of a killed replica are back, and how it is made. Up to 1,000 agents it is
// fixed. More agents in addition need the time of their handshakes, at the rate that was measured in the same run. A lower rate
// than leastRate does not extend it, because a regression would loosen its own target.
func returnTarget(agents, sessions int, perSecond float64) (target time.Duration, from string) {
	const fixed = 30 * time.Second
	if agents <= 1000 || perSecond <= 0 {
		return fixed, "30 s"
	}
	handshakes := float64(sessions) / max(perSecond, leastRate)
	return fixed + time.Duration(handshakes*float64(time.Second)), "30 s + its sessions at the connections per second before, but at least half of the documented ones"
}

// areSpread reports whether all agents are connected and no replica has more sessions than fleet.Spreader leaves it: its share,
// rounded up, and a tenth of it, but at least one.
func areSpread(counts []float64, agents int) bool {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	share := (agents + len(counts) - 1) / len(counts)
	return int(total) == agents && int(slices.Max(counts)) <= share+max(1, share/10)
}

// spread waits until agents are spread over the replicas, for at most twice the target.
func (b *bench) spread(ctx context.Context) (counts []float64, err error) {
	all := b.replicaSet.all
	for limit, began := 2*spreadTarget(b.agents), time.Now(); ; {
		counts = nil
		for _, p := range all {
			n, err := p.Metric(ctx, "argocd_agent_principal_sessions")
			if err != nil {
				return nil, err
			}
			counts = append(counts, n)
		}
		if areSpread(counts, b.agents) {
			return counts, nil
		}
		if time.Since(began) > limit {
			return nil, fmt.Errorf("%d agents are not spread over the principals after %v: sessions %v", b.agents, limit, counts)
		}
		report.Progress("sessions: %v", counts)
		if pause(ctx, 5*time.Second); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// killReplica kills the last replica and changes Applications at the same time. Nothing may be lost.
func (b *bench) killReplica(ctx context.Context) error {
	all, addresses := b.replicaSet.all, b.replicaSet.addresses
	last := len(all) - 1
	held, err := all[last].Metric(ctx, "argocd_agent_principal_sessions") // agents may have moved since they were spread
	if err != nil {
		return err
	}
	sessions := int(held)
	requests, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	ended := b.fleet.ends()
	all[last].Kill()
	b.fleet.service.set(addresses[:last]...) // a Service notices it by the probe; a refused connection is retried
	began := time.Now()
	for _, m := range b.fleet.members[:min(b.agents, 100)] {
		if err := b.retarget(ctx, m, appName(0)); err != nil {
			return err
		}
		if err := b.touch(m, appName(1%b.apps)); err != nil {
			return err
		}
	}
	if err := b.fleet.until(ctx, "the agents of the killed replica are back", func(open, proven int) bool {
		return b.fleet.closed-ended >= sessions && open == b.agents && proven == b.agents
	}); err != nil {
		return err
	}
	took := time.Since(began)
	target, from := returnTarget(b.agents, sessions, b.connectRate)
	b.Add("principals: sessions of the killed replica", float64(sessions), "")
	b.Add("principals: connections per second before, for the next target", b.connectRate, "/s")
	b.AtMost(target.Seconds(), "principals: one killed (-9), all agents in sync; target "+from, took.Seconds(), "s")
	now, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	b.Add("principals: one killed (-9), namespaces read for each agent that came back", (now.lists-requests.lists)/float64(max(1, sessions)), "")
	if _, err := b.specs.arrived(ctx, time.Minute); err != nil {
		return err
	}
	if _, err := b.hub.status.arrived(ctx, time.Minute); err != nil {
		return err
	}
	b.Add("principals: changes made while one was dead, all arrived", float64(2*min(b.agents, 100)), "")
	return nil
}
