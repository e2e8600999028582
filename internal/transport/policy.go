package transport

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

// policy says who may call a method.
type policy int

const (
	agentsOnly policy = iota + 1 // whoever Authenticate gives a name
	anybody                      // within limits: what the call says has to prove what it is about
)

// methods lists every RPC that may be called at all. What is absent is refused,
// registered or not: a new service starts with a line here.
var methods = map[string]policy{
	api.Sync_Sync_FullMethodName:   agentsOnly,
	api.Tunnel_Open_FullMethodName: agentsOnly, // and then only with a token of the same connection, or to one of Targets

	api.Enroll_Join_FullMethodName:  anybody, // with a single-use token
	api.Enroll_Renew_FullMethodName: agentsOnly,
	api.Enroll_Trust_FullMethodName: agentsOnly,
}

type peerKey struct{}

// peerOf returns who called, from a handler's context.
func peerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// authorize is the one door to all methods.
func (s *Server) authorize(ctx context.Context, method string) (context.Context, error) {
	plain, _, addr := unwrap(ctx)
	switch methods[method] {
	case agentsOnly:
		p, err := s.cfg.Authenticate(plain)
		if err == nil && p.Agent == "" {
			err = fmt.Errorf("no agent's name")
		}
		if err != nil {
			s.counters.refuse(refusedIdentity)
			s.quiet.with(hostOf(addr), err).WarnContext(ctx, "agent refused")
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
		return context.WithValue(ctx, peerKey{}, p), nil
	case anybody:
		return ctx, nil
	default:
		s.counters.refuse(refusedMethod)
		s.quiet.with(hostOf(addr), fmt.Errorf("method %q is not served here", clip(method))).WarnContext(ctx, "call refused")
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
		leave, err := s.gate(info.FullMethod, callerID(ctx))
		if err != nil {
			return enrollStatus(stream, err)
		}
		defer leave()
		stream = &requestTimeoutStream{stream, s}
	}
	return next(srv, &authorized{stream, ctx})
}

// requestTimeoutStream is a stream of which the request has to come soon.
type requestTimeoutStream struct {
	grpc.ServerStream
	server *Server
}

// RecvMsg implements grpc.ServerStream.
func (p *requestTimeoutStream) RecvMsg(m any) error {
	came := make(chan error, 1)
	p.server.carrying.Go(func() { came <- p.ServerStream.RecvMsg(m) }) // ends with the stream at the latest
	timer := time.NewTimer(enrollRequest)
	defer timer.Stop()
	select {
	case err := <-came:
		return err
	case <-timer.C:
		return status.Error(codes.DeadlineExceeded, "the request did not come in time")
	}
}

const enrollPrefix = "/argocdagent.v1.Enroll/"

// callerID is an agent's name or, where there is none, where it calls from.
func callerID(ctx context.Context) string {
	if p, ok := peerOf(ctx); ok {
		return p.Agent
	}
	_, _, addr := unwrap(ctx)
	return hostOf(addr)
}

func (s *Server) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := s.authorize(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// authorized is a stream whose context knows who called.
type authorized struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (a *authorized) Context() context.Context { return a.ctx }
