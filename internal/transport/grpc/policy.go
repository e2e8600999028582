package grpc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// policy is which clients may call a method.
type policy int

const (
	agentsOnly policy = iota + 1 // clients that Authenticate accepts
	anyClient                    // within limits: the request must prove what it is about
)

// methods lists all methods that may be called. A new service needs a line here.
var methods = map[string]policy{
	api.Sync_Sync_FullMethodName:   agentsOnly,
	api.Tunnel_Open_FullMethodName: agentsOnly, // and with a token of the same connection, or to a target

	api.Enroll_Join_FullMethodName:  anyClient, // with a single-use token
	api.Enroll_Renew_FullMethodName: agentsOnly,
	api.Enroll_Trust_FullMethodName: agentsOnly,
}

type peerKey struct{}

// peerOf returns the authenticated caller from a handler's context.
func peerOf(ctx context.Context) (transport.Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(transport.Peer)
	return p, ok
}

// authorize checks every call.
func (s *Server) authorize(ctx context.Context, method string) (context.Context, error) {
	state, _, addr := unwrap(ctx)
	host := transport.HostOf(addr.String())
	switch methods[method] {
	case agentsOnly:
		md, _ := metadata.FromIncomingContext(ctx)
		p, err := s.cfg.Authenticate(transport.Credentials{TLS: state, RemoteAddr: addr, Header: md.Get})
		if err == nil && p.Agent == "" {
			err = fmt.Errorf("the client has no agent name")
		}
		if err != nil {
			s.counters.Refuse(refusedIdentity)
			s.dedupLog.With(host, err).WarnContext(ctx, "Agent refused")
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
		return context.WithValue(ctx, peerKey{}, p), nil
	case anyClient:
		return ctx, nil
	default:
		s.counters.Refuse(refusedMethod)
		s.dedupLog.With(host, fmt.Errorf("method %q is not served", clip(method))).WarnContext(ctx, "Call refused")
		return nil, status.Error(codes.PermissionDenied, "this method is not served here")
	}
}

func clip(s string) string { return s[:min(len(s), 100)] }

func (s *Server) authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := s.authorize(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if strings.HasPrefix(info.FullMethod, enrollPrefix) {
		done, err := s.beginEnroll(info.FullMethod, callerID(ctx))
		if err != nil {
			return enrollStatus(stream, err)
		}
		defer done()
		stream = &requestTimeoutStream{stream, s}
	}
	return next(srv, &authorized{stream, ctx})
}

// requestTimeoutStream is a stream whose request must arrive soon.
type requestTimeoutStream struct {
	grpc.ServerStream
	server *Server
}

func (p *requestTimeoutStream) RecvMsg(m any) error {
	received := make(chan error, 1)
	p.server.running.Go(func() { received <- p.ServerStream.RecvMsg(m) }) // ends with the stream at the latest
	timer := time.NewTimer(enrollRequestTimeout)
	defer timer.Stop()
	select {
	case err := <-received:
		return err
	case <-timer.C:
		return status.Error(codes.DeadlineExceeded, "the request did not arrive in time")
	}
}

// callerID returns the name of an agent, or the address of an unknown client.
func callerID(ctx context.Context) string {
	if p, ok := peerOf(ctx); ok {
		return p.Agent
	}
	_, _, addr := unwrap(ctx)
	return transport.HostOf(addr.String())
}

func (s *Server) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := s.authorize(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// authorized is a stream whose context has the caller.
type authorized struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *authorized) Context() context.Context { return a.ctx }
