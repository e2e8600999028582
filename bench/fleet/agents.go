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

// argocd is the namespace of Argo CD on the spokes.
const argocd = "argocd"

// member is one agent of the fleet with its cluster.
type member struct {
	name    string
	mode    kind.Mode
	cluster *memcluster.Cluster
	cert    tls.Certificate
	link    *faultproxy.Link // nil: it dials the principal itself
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	cancel context.CancelFunc
	done   chan struct{}
	ended  error // what Run returned
}

// fleet is all of them, and what they have reported.
type fleet struct {
	members []*member
	roots   *x509.CertPool
	weather netem.Profile
	bad     netem.Counters

	mu      sync.Mutex
	open    map[string]bool // agents with a session → whether everything is proven equal in it, or was made so
	proven  int             // agents of which that is so
	closed  int             // sessions that have ended
	changed chan struct{}
}

func newFleet(weather netem.Profile) *fleet {
	return &fleet{weather: weather, roots: x509.NewCertPool(), open: map[string]bool{}, changed: make(chan struct{})}
}

// add makes a member; it does not run yet.
func (f *fleet) add(i int, mode kind.Mode, credentials func(string) (cert, key, ca string, err error)) (*member, error) {
	name := fmt.Sprintf("w%04d", i)
	certFile, keyFile, ca, err := credentials(name)
	if err != nil {
		return nil, err
	}
	m := &member{name: name, mode: mode, cluster: memcluster.New("cluster-"+name, argocd)}
	if !f.weather.IsZero() {
		m.dial = f.weather.Dialer(name, &f.bad)
	}
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

// start starts an agent, as its program would.
func (f *fleet) start(ctx context.Context, m *member, server string) {
	if m.link != nil {
		server = m.link.Addr()
	}
	ctx, m.cancel = context.WithCancel(ctx)
	m.done = make(chan struct{})
	config := agent.Config{
		Cluster: &rest.Config{Host: "http://memory", Transport: m.cluster}, Namespace: argocd, Version: "bench",
		Mode: m.mode, Mapping: kind.ByNamespace, Policy: reconcile.Policy{}, Server: server,
		TLS: f.tls(m), Dial: m.dial,
		Log: slog.New(slog.DiscardHandler), Jitter: rand.Float64, Reported: func(r reconcile.Report) { f.report(m, r) },
	}
	go func() {
		defer close(m.done)
		m.ended = agent.Run(ctx, config)
	}()
}

// tls is how a member proves who it is.
func (f *fleet) tls(m *member) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		return &tls.Config{RootCAs: f.roots, Certificates: []tls.Certificate{m.cert}, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1"}, nil
	}
}

// stop stops agents, waits for them, and forgets what they have reported.
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
			f.proven--
		}
		delete(f.open, m.name)
	}
}

func (f *fleet) startAll(ctx context.Context, server string) {
	for _, m := range f.members {
		f.start(ctx, m, server)
	}
}

// report keeps count. It is called by the goroutine of each agent's node.
func (f *fleet) report(m *member, r reconcile.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[m.name] {
		f.proven--
	}
	switch r.Fact.Type {
	case engine.Opened:
		f.open[m.name] = false
	case engine.Closed:
		delete(f.open, m.name)
		f.closed++
	case engine.InitialSyncDone:
		f.open[m.name] = true
	}
	if f.open[m.name] {
		f.proven++
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// ends tells how many sessions have ended so far.
func (f *fleet) ends() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// until waits until the counts of agents that are connected, and that are proven equal, are as wanted.
func (f *fleet) until(ctx context.Context, what string, reached func(open, proven int) bool) (time.Duration, error) {
	began := time.Now()
	limit := time.NewTimer(10 * time.Minute)
	defer limit.Stop()
	for {
		f.mu.Lock()
		open, proven, changed := len(f.open), f.proven, f.changed
		f.mu.Unlock()
		if reached(open, proven) {
			return time.Since(began), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-limit.C:
			return 0, fmt.Errorf("%s: of %d agents %d are connected and %d proven equal after 10 minutes", what, len(f.members), open, proven)
		}
	}
}
