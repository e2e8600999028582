package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// serveHealth serves the probes. current returns nil until the API server responds.
func serveHealth(ctx context.Context, listener net.Listener, client *kube.Client, current func() *process) error {
	check := func(name string, run func(*principal) error) observe.Check {
		return observe.Check{Name: name, Run: func() error {
			p := current()
			if p == nil {
				return errAPIServer
			}
			if p.principal == nil && p.hub.state.Role == hubstate.Standby {
				return p.hub.invalid // a standby is ready
			}
			if p.principal == nil {
				return p.hub.refusal(p.lease)
			}
			return run(p.principal)
		}}
	}
	return observe.Serve(ctx, listener, observe.Probes(
		check("objects", func(p *principal) error { return p.objects.Check() }),
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
		return errors.New("agents are not accepted")
	}
	return nil
}

var errAPIServer = errors.New("waiting for the API server")

// notReadyReason returns why agents are not accepted. p is nil until the API server responds.
func (p *process) notReadyReason() error {
	switch {
	case p == nil:
		return errAPIServer
	case p.principal == nil:
		return p.hub.refusal(p.lease)
	}
	return p.principal.notReadyReason()
}

// notReadyReason returns why agents are not accepted yet.
func (p *principal) notReadyReason() error {
	for _, check := range []func() error{p.objects.Check, p.registry.Check, p.certificatesReady} {
		if err := check(); err != nil {
			return err
		}
	}
	return errors.New("starting")
}
