package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// spiffeSettings configure an identity from a SPIFFE Workload API instead of Secrets or files.
type spiffeSettings struct {
	socket  string
	domains []string // trust domains of peers
	server  string   // only for an agent: the SPIFFE ID of the principal

	source *identity.SPIFFESource // nil if SPIFFE is off
}

func (s *spiffeSettings) declare(f *flags, needs string) {
	f.add("spiffe-endpoint-socket", text(&s.socket, "ADDRESS", ""),
		"Address of a SPIFFE Workload API, such as unix:///run/spire/sockets/agent.sock. It provides the certificate and the "+
			"trusted CAs instead of Secrets. Requires "+needs+".").envName("SPIFFE_ENDPOINT_SOCKET")
}

// check refuses settings that SPIFFE replaces, and those that turn it off.
func (s *spiffeSettings) check(f *flags, certificates certificateFlags, insecure ...string) {
	if s.socket == "" {
		return
	}
	f.failIf("spiffe-endpoint-socket", identity.CheckSocket(s.socket))
	f.conflicts(true, "spiffe-endpoint-socket", "each is a source of the identity", append(certificates.flags(), insecure...)...)
}

// open sets the source if SPIFFE is on.
func (s *spiffeSettings) open(log *slog.Logger) (err error) {
	if s.socket != "" {
		s.source, err = identity.NewSPIFFESource(s.socket, s.domains, log)
	}
	return err
}

// runWith runs work, and receives updates of the identity until work ends.
func (s *spiffeSettings) runWith(ctx context.Context, log *slog.Logger, work func(context.Context) error) error {
	if s.source == nil {
		return work(ctx)
	}
	updates, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := s.source.Run(updates); err != nil {
			log.WarnContext(ctx, "Failed to watch SPIFFE identity", "error", err)
		}
	})
	return work(ctx)
}
