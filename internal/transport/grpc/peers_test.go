package grpc

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// event is what a peer built on the generated types would send.
func event(t testing.TB, id, name string, value []byte) *api.CloudEvent {
	t.Helper()
	return &api.CloudEvent{Id: id, Source: "agent/agent-a", SpecVersion: "1.0", Type: "io.argocd-agent.sync.v1." + strings.ToLower(name),
		Data: &api.CloudEvent_ProtoData{ProtoData: &anypb.Any{TypeUrl: "type.googleapis.com/argocdagent.v1." + name, Value: value}}}
}

func TestServer_UnderstandsPeersWithGeneratedTypes(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	hub := h.next("connected").conn

	// An older peer says less.
	must(t, stream.Send(event(t, "7.3.1", "Hello", nil)))
	if hello, ok := h.next("received").message.(engine.Hello); !ok || hello.Version != "" {
		t.Errorf("%+v", hello)
	}
	// A newer one says more: fields, attributes and whole messages.
	value := protowire.AppendTag(nil, 1000, protowire.BytesType)
	value = protowire.AppendString(value, "from the future")
	newer := event(t, "7.3.2", "Roots", value)
	newer.Attributes = map[string]*api.CloudEvent_AttributeValue{"traceparent": {Attr: &api.CloudEvent_AttributeValue_CeString{CeString: "x"}}}
	must(t, stream.Send(newer))
	if roots, ok := h.next("received").message.(engine.Roots); !ok || len(roots.Items) != 0 {
		t.Errorf("%+v", roots)
	}
	must(t, stream.Send(event(t, "7.3.3", "Teleport", value)))
	must(t, stream.Send(event(t, "7.3.4", "Same", nil)))
	if _, ok := h.next("received").message.(engine.Same); !ok {
		t.Error("what is unknown is not passed over")
	}
	if n := hub.Traffic.UnknownIn.Load(); n != 1 {
		t.Errorf("%d unknown messages counted", n)
	}
	// What the hub says, the generated types understand.
	must(t, hub.Send(engine.Welcome{Agent: "agent-a"}))
	answer, err := stream.Recv()
	must(t, err)
	if answer.Type != "io.argocd-agent.sync.v1.welcome" || answer.Source != "hub/agent-a" || answer.Id != "0.0.1" {
		t.Errorf("%v", answer)
	}
	welcome := &api.Welcome{}
	must(t, answer.GetProtoData().UnmarshalTo(welcome))
	if welcome.Agent != "agent-a" {
		t.Errorf("%v", welcome)
	}
}

func TestConn_EventsCarryTheSession(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stream := openSync(t, byHand(t, h.address, ca.clientTLS("agent-a")))
	hello := protowire.AppendTag(nil, 1, protowire.BytesType)
	hello = protowire.AppendBytes(hello, []byte{1 << 3, 7, 2 << 3, 3}) // epoch 7.3
	must(t, stream.Send(event(t, "7.3.1", "Hello", hello)))
	hub := h.next("connected").conn
	h.next("received")
	for _, want := range []string{"7.3.1", "7.3.2"} {
		must(t, hub.Send(roots(1)))
		answer, err := stream.Recv()
		must(t, err)
		if answer.Id != want {
			t.Errorf("ID %s instead of %s", answer.Id, want)
		}
	}
}

func TestCompression_SavesBytesInBothDirections(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), Compress: true})
	agent, hub := s.next("connected").conn, h.next("connected").conn
	text := engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: []byte(strings.Repeat("compressible ", 50_000))}}}
	must(t, agent.Send(text))
	must(t, hub.Send(text))
	for side, got := range map[string]engine.Message{"hub": h.next("received").message, "agent": s.next("received").message} {
		if delta, ok := got.(engine.Delta); !ok || !bytes.Equal(delta.Items[0].Content, text.Items[0].Content) {
			t.Errorf("the %s got something else", side)
		}
	}
	for _, c := range []*transport.Conn{agent, hub} {
		if plain, wire := c.Traffic.BytesIn.Load(), c.Traffic.WireIn.Load(); wire == 0 || wire > plain/20 {
			t.Errorf("%d bytes took %d on the wire", plain, wire)
		}
	}
}

// connectProxy is an HTTP proxy that opens tunnels.
func connectProxy(t testing.TB, wantAuth string) (address string, tunnels func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	opened := make(chan struct{}, 100)
	serve := func(conn net.Conn) {
		defer conn.Close()
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil || req.Method != http.MethodConnect {
			return
		}
		if req.Header.Get("Proxy-Authorization") != wantAuth {
			_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
			return
		}
		to, err := net.Dial("tcp", req.Host)
		if err != nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			return
		}
		defer to.Close()
		opened <- struct{}{}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			_, _ = io.Copy(to, conn)
			_ = to.Close()
		}()
		_, _ = io.Copy(conn, to)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String(), func() int { return len(opened) }
}

func TestConnector_UsesTheProxy(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	proxy, tunnels := connectProxy(t, "Basic dXNlcjpzZWNyZXQ=")
	via := func(text string) func(*http.Request) (*url.URL, error) {
		return func(req *http.Request) (*url.URL, error) {
			if req.URL.Scheme != "https" || req.URL.Host != h.address {
				t.Errorf("asked for %s", req.URL)
			}
			return url.Parse(text)
		}
	}
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), Proxy: via("http://user:secret@" + proxy)})
	agent := s.next("connected").conn
	must(t, agent.Send(roots(1)))
	if h.next("connected"); tunnels() != 1 {
		t.Errorf("%d tunnels", tunnels())
	}
	h.next("received")

	for text, problem := range map[string]string{
		"http://" + proxy:                  "authentication required",
		"http://user:wrong@" + proxy:       "authentication required",
		"http://127.0.0.1:1":               "dial proxy",
		"socks5://user:secret@" + proxy:    `scheme "socks5" is not supported`,
		"https://user:secret@" + h.address: "certificate", // not trusted as a proxy
	} {
		s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b"), Proxy: via(text)})
		err := s.failure()
		if !strings.Contains(err.Error(), problem) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
		s.stop()
	}
}

func TestConnector_UsesAProxyWithTLS(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS()})
	plain, tunnels := connectProxy(t, "")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.issue("proxy", time.Hour)}})
	must(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", plain)
		if err == nil {
			go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
			_, _ = io.Copy(conn, to)
		}
		_ = conn.Close()
	}()
	s := dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a"), ProxyTLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool()},
		Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("https://" + l.Addr().String()) }})
	s.next("connected")
	if tunnels() != 1 {
		t.Errorf("%d tunnels", tunnels())
	}
}

func TestDialer_StopsWhileItDials(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	dialling := make(chan struct{})
	s := dial(t, spokeConfig{Address: "127.0.0.1:1", TLS: ca.clientTLS("agent-a"), Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	<-dialling
	s.stop()
}
