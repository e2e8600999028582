package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// spiffeSettings say where a program gets its identity from, instead of from
// Secrets or files.
type spiffeSettings struct {
	socket string
	server string // agent: the identity of the principal

	workload *identity.SPIFFESource // once it is known to be wanted
}

func (s *spiffeSettings) declare(f *flags, ofAgent bool) {
	means := "Address of a SPIFFE Workload API, such as unix:///run/spire/sockets/agent.sock, to get the identity of this program and the bundles of trust domains from, instead of from Secrets. "
	if ofAgent {
		means += "Needs --spiffe-server-id."
	} else {
		means += "Needs --auth mtls:uri:REGEX, which finds an agent's name in its SPIFFE ID."
	}
	f.add("spiffe-endpoint-socket", text(&s.socket, "ADDRESS", ""), means)
	f.envName("spiffe-endpoint-socket", "SPIFFE_ENDPOINT_SOCKET")
	if ofAgent {
		f.add("spiffe-server-id", text(&s.server, "ID", ""), "SPIFFE ID of the principal, such as spiffe://example.org/argocd-agent/principal: who has another is not believed to be it.")
	}
}

// check finds contradictions. Insecure is a flag that turns off what SPIFFE is for.
func (s *spiffeSettings) check(f *flags, bad *validationErrors, certificates certificateFlags, insecure ...string) {
	if s.socket == "" {
		return
	}
	if err := identity.CheckSocket(s.socket); err != nil {
		bad.add("%s: %w", f.name("spiffe-endpoint-socket"), err)
	}
	if others := append(certificates.flags(), insecure...); f.anyGiven(others...) {
		bad.add("%s contradicts %s: the identity comes from the one or the other; remove one", f.names(others...), f.name("spiffe-endpoint-socket"))
	}
}

func (s *spiffeSettings) checkServer(f *flags, bad *validationErrors) {
	switch {
	case s.socket == "" && s.server != "":
		bad.add("%s has no effect without --spiffe-endpoint-socket: add the one or remove the other", f.name("spiffe-server-id"))
	case s.socket != "" && s.server == "":
		bad.add("%s without --spiffe-server-id: any workload of the trust domain could pass for the principal; give its SPIFFE ID", f.name("spiffe-endpoint-socket"))
	case s.server != "":
		if err := identity.CheckSPIFFEID(s.server); err != nil {
			bad.add("%s: %w", f.name("spiffe-server-id"), err)
		}
	}
}

// trustSPIFFE sets up TLS with identities of the Workload API.
func (s *principalSettings) trustSPIFFE(cfg *principal.Config) (err error) {
	if s.spiffe.workload, err = identity.NewSPIFFESource(s.spiffe.socket, cfg.Log); err != nil {
		return err
	}
	cfg.TLS = s.spiffe.workload.ServerTLS(cfg.Revocations)
	s.apply(cfg.TLS)
	return nil
}

func (s *agentSettings) trustSPIFFE(cfg *agent.Config) (err error) {
	if s.spiffe.workload, err = identity.NewSPIFFESource(s.spiffe.socket, cfg.Log); err != nil {
		return err
	}
	cfg.TLS = func() (*tls.Config, error) {
		now, err := s.spiffe.workload.ClientTLS(s.spiffe.server)
		if err != nil {
			return nil, err
		}
		s.apply(now)
		return now, nil
	}
	return nil
}

// beside runs work with the identity being followed beside it, where there is
// one.
func (s *spiffeSettings) beside(ctx context.Context, log *slog.Logger, work func(context.Context) error) error {
	if s.workload == nil {
		return work(ctx)
	}
	following, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := s.workload.Run(following); err != nil {
			log.WarnContext(ctx, "SPIFFE identity is no longer updated", "error", err)
		}
	})
	return work(ctx)
}
