package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// byHand is a client that knows gRPC and nothing of this package.
func byHand(t testing.TB, address string, cfg func() (*tls.Config, error)) *grpc.ClientConn {
	t.Helper()
	secure, err := cfg()
	must(t, err)
	client, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func openSync(t testing.TB, client *grpc.ClientConn) grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent] {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	stream, err := api.NewSyncClient(client).Sync(ctx)
	must(t, err)
	return stream
}

func TestServer_CutsASlowReaderOnly(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	slow := newRecorder(t)
	stuck := make(chan struct{})
	slow.received = func(c *transport.Conn, _ engine.Message) {
		stuck <- struct{}{}
		<-c.Done() // as transport.Events promises
	}
	d := newSpoke(spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-slow"), Events: slow, Log: (&journal{}).logger(), Wait: stopDialling})
	running(t, d.Run)
	victim := h.next("connected").conn
	other := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-quick")})
	quick := h.next("connected").conn

	big := engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: make([]byte, 1<<20)}}}
	must(t, victim.Send(big))
	<-stuck
	sent := 0
	for {
		err := victim.Send(big) // never waits
		if errors.Is(err, transport.ErrSlowReader) {
			break
		}
		must(t, err)
		if sent++; sent > 100 {
			t.Fatal("the queue has no end")
		}
	}
	if got := h.next("disconnected"); got.conn != victim || !errors.Is(got.err, transport.ErrSlowReader) {
		t.Errorf("%s ended by %v", got.conn.Agent, got.err)
	}
	slow.next("connected")
	if got := slow.next("disconnected"); got.err == nil {
		t.Error("the agent does not know that something went wrong")
	}
	other.next("connected")
	for i := range 100 {
		must(t, quick.Send(roots(i)))
		other.next("received")
	}
}

func TestConn_SurvivesAMessageThatCannotBeSent(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent := s.next("connected").conn
	huge := engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: make([]byte, wire.MaxContent+1)}}}
	if broken, ok := agent.Send(huge).(*wire.Error); !ok || broken.Code != engine.TooLarge {
		t.Errorf("error %v", broken)
	}
	must(t, agent.Send(roots(1)))
	h.next("connected")
	h.next("received")
}

func TestServer_CutsTheSenderOfAnOversizedMessageOnly(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	h.next("connected")
	_ = stream.Send(&api.CloudEvent{Id: "1.1.1", Data: &api.CloudEvent_BinaryData{BinaryData: make([]byte, wire.MaxEvent+1)}})
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the agent learns %v", err)
	}
	if err := h.next("disconnected").err; err == nil || !strings.Contains(err.Error(), "exceeds the limit of 4194304 bytes") {
		t.Errorf("the hub learns %v", err)
	}
}

func TestServer_AnswersAnInvalidMessageWithBye(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	h.next("connected")
	must(t, stream.Send(&api.CloudEvent{Id: "1.1.1", Source: "agent/a", SpecVersion: "0.3", Type: "io.argocd-agent.sync.v1.hello"}))
	event, err := stream.Recv()
	must(t, err)
	if event.Type != "io.argocd-agent.sync.v1.bye" || !strings.Contains(string(event.GetProtoData().GetValue()), "spec_version") {
		t.Errorf("the agent gets %v", event)
	}
	must(t, stream.CloseSend())
	if bye := h.bye(); bye.Code != engine.BadMessage || !bye.Local {
		t.Errorf("the hub says %v", bye)
	}
}

func TestConn_CloseDoesNotWaitLong(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	h.next("connected").conn.Close(engine.Revoked, "go away")
	if _, err := stream.Recv(); err != nil {
		t.Errorf("no goodbye: %v", err)
	}
	if bye := h.bye(); bye.Code != engine.Revoked { // although the peer stays
		t.Errorf("ended by %v", bye)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the connection is still there")
	}
}

func TestServer_RemovesAPeerThatLeavesWithoutReading(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	hub := h.next("connected").conn
	big := engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: make([]byte, 1<<20)}}}
	for range 4 { // more than the peer's window
		must(t, hub.Send(big))
	}
	must(t, stream.Send(event(t, "1.1.1", "Bye", nil)))
	if bye := h.bye(); bye.Local {
		t.Errorf("ended by %v", bye)
	}
}

func TestPolicy_RefusesOtherMethods(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	client := byHand(t, h.address, ca.clientTLS("agent-a"))
	for _, method := range []string{"/argocdagent.v1.Tunnel/Other", "/argocdagent.v1.Sync/Other", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		stream, err := client.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		must(t, err)
		if err := stream.RecvMsg(&api.Frame{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", method, err)
		}
	}
	if n := h.Counters().Refused()[refusedMethod]; n != 3 {
		t.Errorf("counted %d", n)
	}
	openSync(t, client)
	h.next("connected")
	second := openSync(t, client)
	if _, err := second.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second stream: %v", err)
	}
}

func TestServer_SurvivesGarbageOnThePort(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01\x02\x03", strings.Repeat("\xff", 100_000), "SSH-2.0-x\r\n"} {
		conn, err := net.Dial("tcp", h.address)
		must(t, err)
		_, _ = conn.Write([]byte(garbage))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the hub closes it
		must(t, conn.Close())
	}
	// A peer with a certificate that does not speak HTTP/2 afterwards.
	cfg, err := ca.clientTLS("agent-a")()
	must(t, err)
	cfg.ServerName, cfg.NextProtos = "localhost", []string{"h2"}
	conn, err := tls.Dial("tcp", h.address, cfg)
	must(t, err)
	_, err = conn.Write([]byte(strings.Repeat("garbage", 100)))
	must(t, err)
	_, _ = io.Copy(io.Discard, conn)
	must(t, conn.Close())

	eventually(t, "all are gone", func() bool { return h.Counters().Sockets.Load() == 0 })
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")}).next("connected")
	if n := strings.Count(h.log.String(), "\n"); n > 4 {
		t.Errorf("%d lines for it:\n%s", n, h.log)
	}
}

func TestListener_EvictsSilentHandshakes(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Limits: Limits{Handshakes: 4, HandshakeTimeout: time.Minute}})
	var silent sync.WaitGroup
	for range 4 {
		conn, err := net.Dial("tcp", h.address)
		must(t, err)
		silent.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		t.Cleanup(func() { _ = conn.Close() })
	}
	eventually(t, "all are there", func() bool { return h.Counters().Sockets.Load() == 4 })
	// The agent is refused until the silent handshakes are old enough to be evicted.
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")}).next("connected")
	if h.Counters().Refused()[refusedHandshakes] == 0 {
		t.Error("no handshake was refused")
	}
	h.stop() // although some handshakes last for a minute
	silent.Wait()
}

func TestListener_LimitsConnections(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Limits: Limits{Conns: 1}})
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b")}).next("connected")
	late := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-c")})
	_ = late.failure()
	if refused := h.Counters().Refused(); refused[refusedFull] == 0 {
		t.Errorf("counted %v", refused)
	}
}

func TestListener_CountsConnectionsByAgent(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), Limits: Limits{ConnsPerAgent: 3}})
	open := func() grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent] {
		t.Helper()
		return openSync(t, byHand(t, h.address, ca.clientTLS("agent-a"))) // each with a certificate of its own
	}
	ended := func(stream grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent]) bool {
		_, err := stream.Recv()
		return err != nil
	}
	session := open()
	current := h.welcome("agent-a")
	if _, err := session.Recv(); err != nil {
		t.Fatal(err)
	}
	var silent []grpc.BidiStreamingClient[api.CloudEvent, api.CloudEvent]
	for range 4 { // the first two of them make the agent's connections complete
		silent = append(silent, open())
		got := map[string]int{(<-h.calls).what: 1}
		if len(silent) > 2 {
			got[(<-h.calls).what]++
		}
		if want := min(1, len(silent)/3); got["connected"] != 1 || got["disconnected"] != want {
			t.Fatalf("connection %d: %v", len(silent), got)
		}
	}
	if !ended(silent[0]) || !ended(silent[1]) {
		t.Error("the oldest connections without a session are open")
	}
	must(t, current.Send(roots(1)))
	if ended(session) {
		t.Error("the session was displaced")
	}
	if n := len(h.Conns()); n != 3 {
		t.Errorf("%d connections", n)
	}
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b")}).next("connected")
	if n := h.Counters().Refused()[refusedPeer]; n != 2 {
		t.Errorf("counted %d", n)
	}
}

func TestListener_LimitsConnectionRateOfAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		cert := ca.issue("agent-a", time.Hour)
		connect := func(cert tls.Certificate) (admitted bool) {
			t.Helper()
			raw, err := c.dial(t.Context(), "", "")
			must(t, err)
			defer raw.Close()
			cfg, err := ca.clientWith(cert)()
			must(t, err)
			cfg.ServerName, cfg.NextProtos = "localhost", []string{"h2"}
			conn := tls.Client(raw, cfg)
			if conn.HandshakeContext(t.Context()) != nil {
				return false
			}
			_, err = conn.Read(make([]byte, 1)) // settings of HTTP/2, or the end
			return err == nil
		}
		for i := range agentBurst {
			if !connect(cert) {
				t.Fatalf("connection %d was refused", i)
			}
		}
		if connect(cert) || connect(ca.issue("agent-a", time.Hour)) {
			t.Error("the rate of the agent is not limited")
		}
		if !connect(ca.issue("agent-b", time.Hour)) {
			t.Error("another agent was refused")
		}
		time.Sleep(agentConnInterval)
		if !connect(cert) || connect(cert) {
			t.Error("not exactly one more connection after the interval")
		}
		if n := h.Counters().Refused()[refusedAgentRate]; n != 3 {
			t.Errorf("counted %d", n)
		}
	})
}

func TestListener_LimitsFailuresByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		fail := func() {
			t.Helper()
			conn, err := c.dial(t.Context(), "", "")
			must(t, err)
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			_ = conn.Close()
			synctest.Wait()
		}
		for range addressBurst {
			fail()
		}
		if n := h.Counters().Refused()[refusedAddress]; n != 0 {
			t.Fatalf("%d refused within the rate", n)
		}
		fail()
		if n := h.Counters().Refused()[refusedAddress]; n != 1 {
			t.Errorf("counted %d", n)
		}
		if n := strings.Count(h.log.String(), "Connections refused"); n != 1 {
			t.Errorf("%d lines for it", n)
		}
		time.Sleep(addressInterval)
		dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial}).next("connected")
		for range 2 { // for the pause, and for the agent that has connected
			fail()
		}
		if n := h.Counters().Refused()[refusedAddress]; n != 1 {
			t.Errorf("an address with an agent: %d refused", n)
		}
		if fail(); h.Counters().Refused()[refusedAddress] != 2 {
			t.Error("an agent gives back more than one")
		}
	})
}

func TestAddressOf_CountsSubnets(t *testing.T) {
	for _, tc := range [][2]string{{"192.0.2.1:1", "192.0.2.1"}, {"[2001:db8::1]:1", "2001:db8::/64"}, {"[2001:db8::ffff:1%eth0]:2", "2001:db8::/64"}} {
		if got := addressOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc[0]))); got != tc[1] {
			t.Errorf("%s counts as %s", tc[0], got)
		}
	}
}
