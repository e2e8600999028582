package grpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// impostor is an agent by hand, with a session.
type impostor struct {
	t      testing.TB
	client *grpc.ClientConn
	sync   grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent]
	conn   *transport.Conn // the hub's
}

func (h *hub) impostor(t testing.TB, ca *ca, name string) *impostor {
	t.Helper()
	i := &impostor{t: t, client: byHand(t, h.address, ca.clientTLS(name))}
	i.sync = openSync(t, i.client)
	i.conn = h.welcome(name)
	_, err := i.sync.Recv() // the Welcome
	must(t, err)
	return i
}

// token returns the token of the hub's next request.
func (i *impostor) token() string {
	i.t.Helper()
	event, err := i.sync.Recv()
	must(i.t, err)
	open := &api.Open{}
	must(i.t, event.GetProtoData().UnmarshalTo(open))
	return open.Token
}

// open opens a stream with a frame.
func (i *impostor) open(first *api.Frame) grpc.BidiStreamingClient[api.Frame, api.Frame] {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.t.Context()), patience)
	i.t.Cleanup(cancel)
	stream, err := api.NewTunnelClient(i.client).Open(ctx)
	must(i.t, err)
	if first != nil {
		_ = stream.Send(first)
	}
	return stream
}

type openResult struct {
	tunnel *tunnel.Tunnel
	err    error
}

// asking opens a tunnel on the hub in the background.
func (h *hub) asking(t testing.TB, agent string) (got chan openResult) {
	t.Helper()
	got = make(chan openResult, 1)
	go func() {
		conn, err := h.OpenTunnel(t.Context(), agent, "api")
		if err != nil {
			got <- openResult{err: err}
			return
		}
		got <- openResult{tunnel: conn.(*tunnel.Tunnel)}
	}()
	return got
}

func TestTunnelService_AcceptsOnlyTokensOfTheConnection(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Tunnels: tunnel.Limits{Standby: -1}})
	older := h.impostor(t, ca, "agent-a")
	a := h.impostor(t, ca, "agent-a")
	b := h.impostor(t, ca, "agent-b")
	got := h.asking(t, "agent-a")
	token := a.token() // the newest session is asked
	refused := func(who string, i *impostor, first *api.Frame) {
		t.Helper()
		if _, err := i.open(first).Recv(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "was not requested") {
			t.Errorf("%s: %v", who, err)
		}
	}
	refused("wrong token", a, &api.Frame{Token: "x"})
	refused("no token", a, &api.Frame{})
	refused("data with the token", a, &api.Frame{Token: token, Data: []byte("x")})
	refused("another agent", b, &api.Frame{Token: token})
	refused("an older connection", older, &api.Frame{Token: token})
	refused("an older connection that refuses", older, &api.Frame{Token: token, Error: "no"})
	stranger := byHand(t, h.address, ca.clientTLS("agent-a"))
	if _, err := (&impostor{t: t, client: stranger}).open(&api.Frame{Token: token}).Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a connection without a session: %v", err)
	}
	unknown := byHand(t, h.address, ca.clientTLS("stranger"))
	if _, err := (&impostor{t: t, client: unknown}).open(&api.Frame{Token: token}).Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("not an agent: %v", err)
	}
	select {
	case early := <-got:
		t.Fatalf("the hub got %+v", early)
	default:
	}

	stream := a.open(&api.Frame{Token: token})
	opened := <-got
	must(t, opened.err)
	refused("a token that was used", a, &api.Frame{Token: token})
	if start, err := stream.Recv(); err != nil || len(start.Data) > 0 {
		t.Errorf("the agent gets %v, %v", start, err)
	}
	// The generated types understand what the tunnel says, and the other way round.
	_, err := opened.tunnel.Write([]byte("ping"))
	must(t, err)
	if f, err := stream.Recv(); err != nil || string(f.Data) != "ping" {
		t.Errorf("the agent gets %v, %v", f, err)
	}
	must(t, opened.tunnel.CloseWrite())
	if f, err := stream.Recv(); err != nil || !f.End {
		t.Errorf("the agent gets %v, %v", f, err)
	}
	must(t, stream.Send(&api.Frame{Data: []byte("pong"), End: true}))
	if got, err := io.ReadAll(opened.tunnel); err != nil || string(got) != "pong" {
		t.Errorf("the hub gets %q, %v", got, err)
	}
	must(t, opened.tunnel.Close())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end the agent gets %v", err)
	}
	if n := h.Counters().Refused()[refusedTunnelToken]; n != 8 {
		t.Errorf("counted %d", n)
	}
}

func TestTunnelService_RefusesTheTokenOfACanceledRequest(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Tunnels: tunnel.Limits{Standby: -1, Open: 50 * time.Millisecond}})
	a := h.impostor(t, ca, "agent-a")
	got := h.asking(t, "agent-a")
	token := a.token()
	if late := <-got; late.err == nil || !strings.Contains(late.err.Error(), tunnel.ErrTimeout.Error()) {
		t.Errorf("%+v", late)
	}
	if _, err := a.open(&api.Frame{Token: token}).Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a late stream: %v", err)
	}
	if _, err := a.open(nil).Recv(); status.Code(err) != codes.DeadlineExceeded { // says nothing
		t.Errorf("a silent stream: %v", err)
	}
	a.conn.Close(engine.Revoked, "go away")
	if got := <-h.asking(t, "agent-a"); got.err == nil {
		t.Error("a tunnel without a session")
	}
	eventually(t, "nothing is in use", func() bool { return h.Counters().Tunnels.Open.Load() == 0 })
}

func TestTunnel_FloodAffectsNoOther(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Tunnels: tunnel.Limits{Standby: -1}})
	a := h.impostor(t, ca, "agent-a")
	open := func() (*tunnel.Tunnel, grpc.BidiStreamingClient[api.Frame, api.Frame]) {
		t.Helper()
		got := h.asking(t, "agent-a")
		stream := a.open(&api.Frame{Token: a.token()})
		opened := <-got
		must(t, opened.err)
		return opened.tunnel, stream
	}
	// Frames without data, without end.
	empty, stream := open()
	for range 10_000 {
		must(t, stream.Send(&api.Frame{}))
	}
	must(t, stream.Send(&api.Frame{Data: []byte("x")}))
	if n, err := empty.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("after empty frames: %d, %v", n, err)
	}
	// A frame that is too long.
	long, stream := open()
	_ = stream.Send(&api.Frame{Data: make([]byte, maxFrame)})
	if _, err := long.Read(make([]byte, 10)); err == nil || !strings.Contains(err.Error(), "at most 65536 are allowed") {
		t.Errorf("a long frame: %v", err)
	}
	// More than was announced.
	after, stream := open()
	must(t, stream.Send(&api.Frame{Data: []byte("x"), End: true}))
	must(t, stream.Send(&api.Frame{Data: []byte("y")}))
	if got, err := io.ReadAll(after); err != nil || string(got) != "x" {
		t.Errorf("after the end: %q, %v", got, err)
	}
	must(t, after.Close())
	must(t, long.Close())
	must(t, empty.Close())
	eventually(t, "nothing is in use", func() bool { return h.Counters().Tunnels.Open.Load() == 0 })
	must(t, a.conn.Send(roots(1))) // the session goes on
	_, err := a.sync.Recv()
	must(t, err)
}

func TestTunnelClient_LimitsRequestsOfTheHub(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{PerAgent: 4}, nil)
	for range 10_000 {
		must(t, l.conn.Send(engine.Open{Token: "x", Target: "api"}))
	}
	must(t, l.conn.Send(roots(1)))
	l.spoke.next("connected")
	l.spoke.next("received")
	l.spoke.next("received") // the requests are not passed to the engine
	eventually(t, "it is over", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		conn, err := l.OpenTunnel(ctx, "agent-a", "api")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}
