package grpc

import (
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// tunnelService accepts the tunnels that agents open.
type tunnelService struct {
	api.UnimplementedTunnelServer
	server *Server
}

// Open implements the service. It runs one tunnel.
func (ts tunnelService) Open(stream grpc.BidiStreamingServer[api.Frame, api.Frame]) error {
	s := ts.server
	p, ok := peerOf(stream.Context())
	_, sock, _ := unwrap(stream.Context())
	if !ok || sock == nil {
		return status.Error(codes.Unauthenticated, "the connection has no identity")
	}
	c := sock.conn.Load()
	if c == nil || c.Agent != p.Agent || c.Fingerprint != p.Fingerprint {
		s.counters.Refuse(refusedTunnelToken)
		return status.Error(codes.FailedPrecondition, "this connection has no session of this agent")
	}
	err := s.hub.ServeTunnel(stream.Context(), c, tunnelStream{stream})
	if ended, ok := errors.AsType[*tunnel.StreamError](err); ok {
		return status.Error(tunnelCodes[ended.Code], ended.Message)
	}
	return err
}

var tunnelCodes = map[tunnel.Code]codes.Code{
	tunnel.Aborted: codes.Aborted, tunnel.Denied: codes.PermissionDenied, tunnel.Invalid: codes.InvalidArgument,
	tunnel.TooMany: codes.ResourceExhausted, tunnel.TimedOut: codes.DeadlineExceeded, tunnel.Ended: codes.Unavailable,
}

// tunnelStream is either end of a Tunnel stream.
type tunnelStream struct{ stream }

func (tunnelStream) NewBuffer(data []byte) tunnel.Buffer { return mem.BufferSlice(newDataFrame(data)) }

func (s tunnelStream) SendData(b tunnel.Buffer) error {
	return explainStatus(s.SendMsg(dataFrame(b.(mem.BufferSlice)))) //nolint:forcetypeassert // made by NewBuffer
}

func (s tunnelStream) Send(f tunnel.Frame) error {
	return explainStatus(s.SendMsg(&api.Frame{
		Token: f.Token, Target: f.Target, End: f.End, Error: tunnel.SanitizeText(f.Reason, tunnel.MaxReason),
	}))
}

func (s tunnelStream) Receive() (f tunnel.Frame, err error) {
	err = explainStatus(s.RecvMsg(&f))
	return f, err
}

func (s tunnelStream) CloseSend() {
	if client, ok := s.stream.(grpc.ClientStream); ok {
		_ = client.CloseSend()
	}
}
