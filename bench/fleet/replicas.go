package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
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
	b.AtMost(b.scaled(300), fmt.Sprintf("%d principals, all agents on one: spread after", b.principals), time.Since(began).Seconds(), "s")
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
		sum += alive
		b.Add(fmt.Sprintf("principals: live memory of replica %d", i+1), alive/1e6, "MB")
		b.Add(fmt.Sprintf("principals: memory of replica %d", i+1), float64(p.Status().Memory)/1e6, "MB RSS")
	}
	if replicas, agents := float64(len(counts)), float64(b.agents); b.served > 0 {
		b.Add("principals: live memory that a replica saves for each agent of the others", (b.served-sum/replicas)/1e3/(agents-agents/replicas), "kB")
	}
	return b.killReplica(ctx, int(counts[len(counts)-1]))
}

// spread waits until no replica has more than its share of the agents by a sixth.
func (b *bench) spread(ctx context.Context) (counts []float64, err error) {
	all := b.replicaSet.all
	for {
		counts = nil
		total := 0.0
		for _, p := range all {
			n, err := p.Metric(ctx, "argocd_agent_principal_sessions")
			if err != nil {
				return nil, err
			}
			counts, total = append(counts, n), total+n
		}
		share := float64(b.agents) / float64(len(all))
		if int(total) == b.agents && slices.Max(counts) <= share+max(2, share/6) {
			return counts, nil
		}
		report.Progress("sessions: %v", counts)
		if pause(ctx, 5*time.Second); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// killReplica kills the last replica and changes Applications at the same time. Nothing may be lost.
func (b *bench) killReplica(ctx context.Context, sessions int) error {
	all, addresses := b.replicaSet.all, b.replicaSet.addresses
	last := len(all) - 1
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
	b.AtMost(b.scaled(30), "principals: one killed (-9), all agents in sync", time.Since(began).Seconds(), "s")
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
