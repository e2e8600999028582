package sharedmode

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// RepoServer is the hub's end: it stands between agents and Argo CD's repo-server.
type RepoServer struct {
	Address string      // of the repo-server, host:port
	TLS     *tls.Config // nil: plaintext

	// Rules are asked for at every request; the error says why the agent may ask for nothing at all.
	Rules func(ctx context.Context, agent string) (*Rules, error)

	Limits RepoLimits
	Log    *slog.Logger

	Requests, Refused atomic.Uint64

	once  sync.Once
	conns chan net.Conn
	all   *semaphore.Weighted
	mu    sync.Mutex
	slots map[string]*slot  // by agent
	said  map[string]string // agent → what was refused last, as it was logged
}

// RepoLimits bound what agents can make the repo-server do. Zero means the default.
type RepoLimits struct {
	PerAgent int           // requests at the same time: 32; more wait
	Total    int           // of all agents: 256; more wait
	Request  int           // bytes: 16 MiB
	Response int           // bytes: 100 MiB, as in Argo CD
	Time     time.Duration // for a request: 10 min; agents usually ask for less
}

// slot holds one agent's requests. It is there as long as the agent has some.
type slot struct {
	users int
	room  *semaphore.Weighted
}

func (s *RepoServer) prepare() {
	s.once.Do(func() {
		orDefault(&s.Limits.PerAgent, 32)
		orDefault(&s.Limits.Total, 256)
		orDefault(&s.Limits.Request, 16<<20)
		orDefault(&s.Limits.Response, 100<<20)
		orDefault(&s.Limits.Time, 10*time.Minute)
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		s.conns = make(chan net.Conn)
		s.all = semaphore.NewWeighted(int64(s.Limits.Total))
		s.slots, s.said = map[string]*slot{}, map[string]string{}
	})
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Run serves what Serve gets until the context ends.
func (s *RepoServer) Run(ctx context.Context) error {
	s.prepare()
	creds := insecure.NewCredentials()
	if s.TLS != nil {
		creds = credentials.NewTLS(s.TLS)
	}
	client, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(s.Limits.Response), grpc.MaxCallSendMsgSize(s.Limits.Request+4096)))
	if err != nil {
		return fmt.Errorf("prepare to connect to the repo-server at %s: %w", s.Address, err)
	}
	defer func() { _ = client.Close() }()
	server := grpc.NewServer(
		grpc.Creds(agentCredentials{}), grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(s.Limits.Request), grpc.MaxSendMsgSize(s.Limits.Response),
		grpc.MaxConcurrentStreams(8), // few: Argo CD opens a connection for each request
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return s.handle(client, stream) }),
	)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(&listener{conns: s.conns, done: ctx.Done()}); ctx.Err() == nil {
		return fmt.Errorf("serve the repo-server to agents: %w", err)
	}
	return nil
}

// Serve carries one connection of an agent until either end closes it, or ctx ends. It owns conn.
func (s *RepoServer) Serve(ctx context.Context, agent string, conn net.Conn) {
	s.prepare()
	defer func() { _ = conn.Close() }()
	c := &agentConn{Conn: conn, agent: agent, closed: make(chan struct{})}
	select {
	case s.conns <- c:
	case <-ctx.Done():
		return
	}
	select {
	case <-c.closed:
	case <-ctx.Done():
	}
}

// handle is the life of one request.
func (s *RepoServer) handle(client *grpc.ClientConn, stream grpc.ServerStream) error {
	ctx := stream.Context()
	agent, ok := agentOf(ctx)
	name, _ := grpc.MethodFromServerStream(stream)
	if !ok {
		return status.Error(codes.Unauthenticated, "the connection is not an agent's")
	}
	s.Requests.Add(1)
	err := s.answer(ctx, client, agent, name, stream)
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.InvalidArgument {
		s.Refused.Add(1)
		s.logRefusal(ctx, agent, name, status.Convert(err).Message())
	}
	return err
}

// logRefusal logs why a request was refused; an agent that asks again and again is loud once.
func (s *RepoServer) logRefusal(ctx context.Context, agent, name, reason string) {
	said := name + " " + reason
	level := slog.LevelWarn
	s.mu.Lock()
	if s.said[agent] == said {
		level = slog.LevelDebug
	}
	if len(s.said) > 10_000 {
		clear(s.said) // of agents that may be long gone
	}
	s.said[agent] = said
	s.mu.Unlock()
	s.Log.Log(ctx, level, "Request to the repo-server denied", "agent", agent, "method", name, "reason", reason)
}

func (s *RepoServer) answer(ctx context.Context, client *grpc.ClientConn, agent, name string, stream grpc.ServerStream) error {
	m, known := methods[name]
	if !known {
		return status.Errorf(codes.PermissionDenied, "%.100s is not among the methods of the hub's repo-server that agents can call", name)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Time)
	defer cancel()
	var request message
	leave, err := s.enter(ctx, agent, func() error { return stream.RecvMsg(&request) })
	if err != nil {
		return err
	}
	defer leave()
	rules, err := s.Rules(ctx, agent)
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if err := rules.check(ctx, m, request); err != nil {
		return err
	}
	asked, answer, err := apart(agent, m, request)
	if err != nil {
		return err
	}
	if m.files {
		if asked, err = withoutLinks(ctx, client, asked); err != nil {
			return err
		}
	}
	response := message(answer)
	if answer == nil {
		if err := client.Invoke(ctx, name, message(asked), &response); err != nil {
			return err
		}
	}
	return stream.SendMsg(response)
}

// enter waits for a slot of the agent, reads the request, and then waits for a slot of all agents. So an agent that sends
// nothing uses no slot of others.
func (s *RepoServer) enter(ctx context.Context, agent string, read func() error) (leave func(), err error) {
	s.mu.Lock()
	own := s.slots[agent]
	if own == nil {
		own = &slot{room: semaphore.NewWeighted(int64(s.Limits.PerAgent))}
		s.slots[agent] = own
	}
	own.users++
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.slots, agent)
		}
	}
	if err := own.room.Acquire(ctx, 1); err != nil { // first: waiting here uses no slot of others
		left()
		return nil, status.FromContextError(err).Err()
	}
	if err := read(); err != nil {
		own.room.Release(1)
		left()
		return nil, err
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		own.room.Release(1)
		left()
		return nil, status.FromContextError(err).Err()
	}
	return func() {
		s.all.Release(1)
		own.room.Release(1)
		left()
	}, nil
}

func agentOf(ctx context.Context) (string, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(agentInfo)
	return info.agent, ok
}
