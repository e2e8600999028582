package sharedmode

import (
	"cmp"
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

	"github.com/argocd-agent/argocd-agent/internal/util/connlistener"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// RepoServer is a proxy between agents and Argo CD's repo-server.
type RepoServer struct {
	cfg   RepoConfig
	conns *connlistener.Listener
	all   *semaphore.Weighted

	Requests, Denied atomic.Uint64

	denials logonce.Last[string] // by agent
	mu      sync.Mutex
	slots   map[string]*slot // by agent
}

// RepoConfig configures a RepoServer. Zero limits mean the default.
type RepoConfig struct {
	Address string      // of the repo-server, host:port
	TLS     *tls.Config // if nil, plaintext

	// Rules is called for each request. It returns an error if the agent may request nothing.
	Rules func(ctx context.Context, agent string) (*Rules, error)

	PerAgent int // parallel requests: 32; more wait
	Total    int // of all agents: 256; more wait
	Request  int // bytes: 16 MiB

	Log *slog.Logger // may be nil
}

const (
	maxResponse    = 100 << 20        // bytes, as in Argo CD
	requestTimeout = 10 * time.Minute // agents usually request less
)

// slot has the limit of one agent's requests. It exists while the agent has requests.
type slot struct {
	users int
	room  *semaphore.Weighted
}

// NewRepoServer returns a RepoServer. Run it.
func NewRepoServer(cfg RepoConfig) *RepoServer {
	cfg.PerAgent, cfg.Total, cfg.Request = cmp.Or(cfg.PerAgent, 32), cmp.Or(cfg.Total, 256), cmp.Or(cfg.Request, 16<<20)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &RepoServer{cfg: cfg, conns: connlistener.New(), all: semaphore.NewWeighted(int64(cfg.Total)), slots: map[string]*slot{}}
}

// Run serves the connections of agents until the context ends.
func (s *RepoServer) Run(ctx context.Context) error {
	creds := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		creds = credentials.NewTLS(s.cfg.TLS)
	}
	client, err := grpc.NewClient(s.cfg.Address, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxResponse), grpc.MaxCallSendMsgSize(s.cfg.Request+4096)))
	if err != nil {
		return fmt.Errorf("configure connections to the repo-server at %s: %w", s.cfg.Address, err)
	}
	defer func() { _ = client.Close() }()
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(s.cfg.Request), grpc.MaxSendMsgSize(maxResponse),
		grpc.MaxConcurrentStreams(8), // few: Argo CD opens a connection for each request
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return s.handle(client, stream) }),
	)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(s.conns); ctx.Err() == nil {
		return fmt.Errorf("serve the repo-server to agents: %w", err)
	}
	return nil
}

// Serve serves one connection of an agent until either end closes it, or ctx ends. It takes ownership of conn.
func (s *RepoServer) Serve(ctx context.Context, agent string, conn net.Conn) {
	c := &agentConn{Conn: conn, agent: agent, closed: make(chan struct{})}
	defer c.Close()
	if s.conns.Offer(ctx, c) != nil {
		return
	}
	select {
	case <-c.closed:
	case <-ctx.Done():
	}
}

// handle handles one request.
func (s *RepoServer) handle(client *grpc.ClientConn, stream grpc.ServerStream) error {
	ctx := stream.Context()
	agent := ""
	if p, ok := peer.FromContext(ctx); ok {
		addr, _ := p.Addr.(agentAddr)
		agent = string(addr)
	}
	if agent == "" {
		return status.Error(codes.Unauthenticated, "the connection is not from an agent")
	}
	name, _ := grpc.MethodFromServerStream(stream)
	s.Requests.Add(1)
	err := s.answer(ctx, client, agent, name, stream)
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.InvalidArgument {
		s.Denied.Add(1)
		reason, level := status.Convert(err).Message(), slog.LevelDebug
		if s.denials.Changed(agent, name+" "+reason) {
			level = slog.LevelWarn
		}
		s.cfg.Log.Log(ctx, level, "Request to the repo-server denied", "agent", agent, "method", name, "reason", reason)
	}
	return err
}

func (s *RepoServer) answer(ctx context.Context, client *grpc.ClientConn, agent, name string, stream grpc.ServerStream) error {
	m, known := methods[name]
	if !known {
		return status.Errorf(codes.PermissionDenied, "%.100s is not among the methods of the hub's repo-server that agents can call", name)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	own := s.takeSlot(agent)
	defer s.returnSlot(agent)
	if err := own.Acquire(ctx, 1); err != nil {
		return status.FromContextError(err).Err()
	}
	defer own.Release(1)
	var request message
	if err := stream.RecvMsg(&request); err != nil { // an agent that sends nothing uses no slot of others
		return err
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		return status.FromContextError(err).Err()
	}
	defer s.all.Release(1)
	rules, err := s.cfg.Rules(ctx, agent)
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

// takeSlot returns the limit of an agent's requests. The caller must call returnSlot.
func (s *RepoServer) takeSlot(agent string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[agent] == nil {
		s.slots[agent] = &slot{room: semaphore.NewWeighted(int64(s.cfg.PerAgent))}
	}
	s.slots[agent].users++
	return s.slots[agent].room
}

func (s *RepoServer) returnSlot(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[agent].users--; s.slots[agent].users == 0 {
		delete(s.slots, agent)
	}
}
