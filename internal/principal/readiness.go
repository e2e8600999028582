package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// objectReadiness knows which resources the reconciler has read.
type objectReadiness struct {
	ready chan struct{} // closed when all resources were listed or found unreadable

	mu       sync.Mutex
	readable map[kind.Resource]bool
}

func newObjectReadiness() *objectReadiness {
	return &objectReadiness{ready: make(chan struct{}), readable: map[kind.Resource]bool{}}
}

func (o *objectReadiness) follow(in reconcile.Input) {
	switch in := in.(type) {
	case reconcile.List:
		o.set(in.Resource, true)
	case reconcile.Unreadable: // the other resources are replicated nevertheless
		o.set(in.Resource, false)
	}
}

func (o *objectReadiness) set(r kind.Resource, readable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.readable)
	o.readable[r] = readable
	if all := len(reconcile.Resources()); before < all && len(o.readable) == all {
		close(o.ready)
	}
}

// check returns an error if a resource cannot be read.
func (o *objectReadiness) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missing []string
	for _, r := range reconcile.Resources() {
		if !o.readable[r] {
			missing = append(missing, r.Plural)
		}
	}
	if len(missing) > 0 {
		return errors.New("cannot read " + strings.Join(missing, ", "))
	}
	return nil
}

// serveHealth serves the probes. current returns nil until the API server responds.
func serveHealth(ctx context.Context, listener net.Listener, client *kube.Client, current func() *principal) error {
	check := func(name string, run func(*principal) error) observe.Check {
		return observe.Check{Name: name, Run: func() error {
			p := current()
			if p == nil {
				return errors.New("waiting for the API server")
			}
			return run(p)
		}}
	}
	return observe.Serve(ctx, listener, observe.Probes(
		check("objects", func(p *principal) error { return p.objects.check() }),
		check("registrations", func(p *principal) error { return p.registry.Check() }),
		check("certificates", (*principal).certificatesReady),
		check("connections", (*principal).listening),
		observe.Check{Name: "writes", Run: client.CheckWritable, WarnOnly: true}, // reads and live access still work
	))
}

// certificatesReady returns an error if TLS cannot be served.
func (p *principal) certificatesReady() error {
	if p.cfg.TLS == nil || p.cfg.TLS.GetConfigForClient == nil {
		return nil
	}
	if _, err := p.cfg.TLS.GetConfigForClient(&tls.ClientHelloInfo{}); err != nil {
		return err
	}
	return p.blocklist.Check()
}

func (p *principal) listening() error {
	if !p.serving.Load() {
		return errors.New("agents are not accepted yet")
	}
	return nil
}

// notReadyReason returns why agents are not accepted yet. p is nil until the API server responds.
func (p *principal) notReadyReason() error {
	if p == nil {
		return errors.New("waiting for the API server")
	}
	for _, check := range []func() error{p.objects.check, p.registry.Check, p.certificatesReady} {
		if err := check(); err != nil {
			return err
		}
	}
	return errors.New("starting")
}
