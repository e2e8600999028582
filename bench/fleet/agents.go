package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memcluster"
	"github.com/argocd-agent/argocd-agent/bench/fleet/netem"
	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// argocd is the Argo CD namespace of the spokes.
const argocd = "argocd"

// member is one agent of the fleet with its cluster.
type member struct {
	name    string
	mode    kind.Mode
	cluster *memcluster.Cluster
	cert    tls.Certificate
	link    *faultproxy.Link // if nil, the agent connects directly to the principal
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	cancel context.CancelFunc
	done   chan struct{}
	ended  error // result of Run
}

// fleet contains all agents and their reported state.
type fleet struct {
	members     []*member
	roots       *x509.CertPool
	linkProfile netem.Profile
	bad         netem.Counters
	service     service

	mu      sync.Mutex
	open    map[string]bool // agents with a session → whether it is in sync
	inSync  int             // number of agents in sync
	closed  int             // number of ended sessions
	changed chan struct{}
}

func newFleet(linkProfile netem.Profile) *fleet {
	return &fleet{linkProfile: linkProfile, roots: x509.NewCertPool(), open: map[string]bool{}, changed: make(chan struct{})}
}

// add creates a member without starting it.
func (f *fleet) add(i int, mode kind.Mode, credentials func(string) (cert, key, ca string, err error)) (*member, error) {
	name := fmt.Sprintf("w%04d", i)
	certFile, keyFile, ca, err := credentials(name)
	if err != nil {
		return nil, err
	}
	m := &member{name: name, mode: mode, cluster: memcluster.New("cluster-"+name, argocd)}
	if !f.linkProfile.IsZero() {
		m.dial = f.linkProfile.Dialer(name, &f.bad)
	}
	m.dial = f.service.dialer(m.dial)
	if m.cert, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return nil, err
	}
	if len(f.members) == 0 {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		f.roots.AppendCertsFromPEM(pem)
	}
	f.members = append(f.members, m)
	return m, nil
}

// start starts an agent in the same way as its binary.
func (f *fleet) start(ctx context.Context, m *member, server string) {
	if m.link != nil {
		server = m.link.Addr()
	}
	ctx, m.cancel = context.WithCancel(ctx)
	m.done = make(chan struct{})
	config := agent.Config{
		Cluster: &rest.Config{Host: "http://memory", Transport: m.cluster}, Namespace: argocd, Version: "bench",
		Mode: m.mode, Mapping: kind.ByNamespace, Policy: reconcile.Policy{}, Servers: []string{server},
		TLS: func(string) (*tls.Config, error) { return f.tls(m)() }, Dial: m.dial,
		Log: slog.New(slog.DiscardHandler), Jitter: rand.Float64, Reported: func(r reconcile.Report) { f.report(m, r) },
	}
	go func() {
		defer close(m.done)
		m.ended = agent.Run(ctx, config)
	}()
}

// tls returns the TLS configuration of a member.
func (f *fleet) tls(m *member) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		return &tls.Config{RootCAs: f.roots, Certificates: []tls.Certificate{m.cert}, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1"}, nil
	}
}

// stop stops agents, waits for them, and deletes their reported state.
func (f *fleet) stop(members ...*member) {
	for _, m := range members {
		if m.cancel != nil {
			m.cancel()
		}
	}
	for _, m := range members {
		if m.done != nil {
			<-m.done
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range members {
		if f.open[m.name] {
			f.inSync--
		}
		delete(f.open, m.name)
	}
}

// maxConnecting bounds the agents that connect at the same time. All of them share the cores of this machine: with more, each
// handshake takes so long that it is ended.
const maxConnecting = 1000

// startAll starts all agents, and returns when at most maxConnecting of them are not connected.
func (f *fleet) startAll(ctx context.Context, server string) {
	for i, m := range f.members {
		for f.notOpen(i) >= maxConnecting {
			if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return
			}
		}
		f.start(ctx, m, server)
	}
}

// notOpen returns how many of the started agents are not connected.
func (f *fleet) notOpen(started int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return started - len(f.open)
}

// report counts connected and synced agents. The goroutine of each agent's reconciler calls it.
func (f *fleet) report(m *member, r reconcile.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[m.name] {
		f.inSync--
	}
	switch r.Event.Type {
	case engine.Opened:
		f.open[m.name] = false
	case engine.Closed:
		delete(f.open, m.name)
		f.closed++
	case engine.InitialSyncDone:
		f.open[m.name] = true
	}
	if f.open[m.name] {
		f.inSync++
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// ends returns the number of sessions that have ended.
func (f *fleet) ends() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// until waits until the expected numbers of agents are connected and in sync.
func (f *fleet) until(ctx context.Context, what string, reached func(open, proven int) bool) error {
	within := 10*time.Minute + time.Duration(len(f.members))*300*time.Millisecond
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		f.mu.Lock()
		open, proven, changed := len(f.open), f.inSync, f.changed
		f.mu.Unlock()
		if reached(open, proven) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("%s: of %d agents %d are connected and %d in sync after %v", what, len(f.members), open, proven, within)
		}
	}
}
