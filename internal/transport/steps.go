package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// steps begins to trace how an agent's session comes about, from the moment its
// connection was accepted, as part of what the agent traces itself. Nil: nothing
// is traced.
func (s *Server) steps(ctx context.Context, p Peer, sock *socket) *trace.Steps {
	if s.cfg.Trace == nil {
		return nil
	}
	within := context.Background()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if span := md.Get(trace.Header); len(span) == 1 {
			within = s.cfg.Trace.WithRemoteParent(within, span[0])
		}
	}
	steps := s.cfg.Trace.Steps(within, trace.KindServer, "accept an agent", "handshake", sock.since)
	steps.Root().SetString(trace.Agent, p.Agent)
	steps.Root().SetString(trace.PeerAddress, hostOf(sock.RemoteAddr()))
	if shaken := sock.handshakeDoneAt.Load(); shaken > 0 {
		steps.NextAt("admit", time.Unix(0, shaken))
	}
	return steps
}

// stepsEnd ends them with the connection, unless they have ended well before.
func (c *Conn) stepsEnd() {
	if c.Steps == nil {
		return
	}
	why := "the connection ended before the session had begun"
	if err := c.Cause(); err != nil {
		why = err.Error()
	}
	c.Steps.Fail(why)
}
