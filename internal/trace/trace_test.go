package trace

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent/argocd-agent/lab/collector"
)

const patience = 30 * time.Second

// logbook is a log that tests read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func startCollector(t *testing.T, secure *tls.Config) *collector.Collector {
	t.Helper()
	c, err := collector.Start(t.Context(), "127.0.0.1:0", secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newTracer(t *testing.T, cfg Config) (*Tracer, *logbook) {
	t.Helper()
	log := &logbook{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	if cfg.Service == "" {
		cfg.Service = "argocd-agent-test"
	}
	if cfg.BatchTimeout == 0 {
		cfg.BatchTimeout = time.Millisecond
	}
	tracer, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracer.Close)
	return tracer, log
}

func named(name string) func(collector.Span) bool {
	return func(s collector.Span) bool { return s.Name == name }
}

func find(t *testing.T, c *collector.Collector, name string) collector.Span {
	t.Helper()
	s, err := c.Find(within(t), named(name))
	if err != nil {
		t.Fatalf("there is no span %q: %v", name, err)
	}
	return s
}

func TestNilTracer_CostsNothing(t *testing.T) {
	var tracer *Tracer
	ctx := t.Context()
	header := http.Header{"Accept": {"*/*"}}
	allocated := testing.AllocsPerRun(100, func() {
		tracer.Name("a")
		ctx, span := tracer.Start(tracer.WithRemoteParent(ctx, ""), KindServer, "x")
		inner, child := StartChild(ctx, KindClient, "y")
		child.SetString(Agent, "a")
		child.SetInt(StatusCode, 200)
		child.Elapsed(QueueWait)
		child.Event("now")
		child.Fail("why")
		child.Inject(header)
		child.End()
		SanitizeHeaders(header)
		tracer.StartItem(ctx, KindInternal, "i", Item{}).End()
		steps := tracer.Steps(inner, KindServer, "s", "first", time.Time{})
		steps.Next("second")
		steps.NextAt("third", time.Time{})
		steps.Root().SetString(Agent, "a")
		steps.Fail("why")
		steps.End()
		_ = span.NewContext(ctx)
		span.End()
	})
	if allocated != 0 {
		t.Errorf("it costs %v allocations", allocated)
	}
	if _, on := tracer.Counts(); on {
		t.Error("it counts")
	}
	tracer.Close()
}

func TestSpans_AreNested(t *testing.T) {
	c := startCollector(t, nil)
	tracer, _ := newTracer(t, Config{Address: c.Address(), Insecure: true, Version: "1.2.3"})
	ctx, span := tracer.Start(t.Context(), KindServer, "outer")
	tracer.Name("cluster-1")
	_, child := StartChild(ctx, KindClient, "inner")
	child.SetInt(StatusCode, 404)
	child.Fail("Not Found")
	child.End()
	child.End() // does nothing
	span.Event("half way")
	span.End()

	outer, inner := find(t, c, "outer"), find(t, c, "inner")
	if outer.Parent != "" || inner.Parent != outer.ID || inner.Trace != outer.Trace {
		t.Errorf("the one is not within the other: %+v %+v", outer, inner)
	}
	if inner.Attributes[Agent] != "cluster-1" || inner.Attributes[StatusCode] != "404" || !inner.Failed || inner.Why != "Not Found" {
		t.Errorf("inner: %+v", inner)
	}
	if len(outer.Events) != 1 || outer.Events[0] != "half way" || outer.Resource["service.name"] != "argocd-agent-test" || outer.Resource["service.version"] != "1.2.3" {
		t.Errorf("outer: %+v", outer)
	}
	tracer.Close()
	if counts, _ := tracer.Counts(); counts != (Counts{Sent: 2}) {
		t.Errorf("counted: %+v", counts)
	}
}

func TestSteps_FollowEachOther(t *testing.T) {
	c := startCollector(t, nil)
	tracer, _ := newTracer(t, Config{Address: c.Address(), Insecure: true})
	begin := time.Now().Add(-time.Minute)
	steps := tracer.Steps(t.Context(), KindClient, "connect", "dial", begin)
	steps.NextAt("handshake", begin.Add(time.Second))
	steps.Next("greet")
	steps.Fail("cut")
	steps.End()
	steps.Next("too late")
	whole, dial, greet := find(t, c, "connect"), find(t, c, "dial"), find(t, c, "greet")
	if dial.Parent != whole.ID || dial.End.Sub(dial.Begin) != time.Second || !whole.Begin.Equal(dial.Begin) {
		t.Errorf("connect %+v, dial %+v", whole, dial)
	}
	if !whole.Failed || !greet.Failed || greet.Why != "cut" || dial.Failed {
		t.Errorf("wrong span failed: %+v %+v", whole, greet)
	}
	tracer.Close()
	if n := len(c.Spans()); n != 4 {
		t.Errorf("%d spans rather than 4", n)
	}
}

func TestSpan_BoundsTexts(t *testing.T) {
	c := startCollector(t, nil)
	tracer, _ := newTracer(t, Config{Address: c.Address(), Insecure: true})
	long := strings.Repeat("ä", 10_000)
	_, span := tracer.Start(t.Context(), KindServer, "x"+long)
	for range 1000 {
		span.Event(long)
		span.SetString(Namespace, "v\xff"+long)
	}
	span.SetString(Object, "\xff\xfe"+long)
	span.Fail("\xc3" + long)
	span.End()
	got, err := c.Find(within(t), func(s collector.Span) bool { return strings.HasPrefix(s.Name, "x") })
	if err != nil {
		t.Fatal(err)
	}
	texts := append([]string{got.Name, got.Why}, got.Events...)
	for _, v := range got.Attributes {
		texts = append(texts, v)
	}
	for _, text := range texts {
		if len(text) > maxTextLen+4 || !utf8.ValidString(text) {
			t.Errorf("%d bytes, readable: %v", len(text), utf8.ValidString(text))
		}
	}
	if len(got.Events) > 32 {
		t.Errorf("%d events", len(got.Events))
	}
}

func TestExport_UnreachableCollectorIsLoggedOnce(t *testing.T) {
	c := startCollector(t, nil)
	c.Fail = status.Error(codes.PermissionDenied, "not you")
	tracer, log := newTracer(t, Config{Address: c.Address(), Insecure: true})
	for range 3 {
		_, span := tracer.Start(t.Context(), KindInternal, "lost")
		span.End()
		if err := tracer.export.provider.ForceFlush(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	again, err := collector.Start(t.Context(), c.Address(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, span := tracer.Start(t.Context(), KindInternal, "found")
	span.End()
	find(t, again, "found")
	tracer.Close()
	if n := log.count("Failed to send traces"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	if log.count("accepts traces again") != 1 || log.count("dropped=3") != 1 {
		t.Errorf("it was not said that it is back: %s", log.text.String())
	}
	if counts, _ := tracer.Counts(); counts != (Counts{Sent: 1, Refused: 3}) {
		t.Errorf("counted: %+v", counts)
	}
}

func TestExport_ShutdownDoesNotWait(t *testing.T) {
	c := startCollector(t, nil)
	c.Hold = make(chan struct{})
	tracer, log := newTracer(t, Config{Address: c.Address(), Insecure: true})
	_, span := tracer.Start(t.Context(), KindInternal, "x")
	span.End()
	if err := c.Wait(within(t), func() bool { return c.Requests() > 0 }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { tracer.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it waits")
	}
	if log.count("did not accept all traces") != 1 {
		t.Error("it was not said that some are lost")
	}
}

func TestExport_FullQueueDropsSpans(t *testing.T) {
	c := startCollector(t, nil)
	c.Hold = make(chan struct{})
	tracer, _ := newTracer(t, Config{Address: c.Address(), Insecure: true, Queue: 8})
	for range 20 { // would wait forever, if it waited
		_, span := tracer.Start(t.Context(), KindInternal, "x")
		span.End()
	}
	if counts, _ := tracer.Counts(); counts.Full != 12 || counts.Sent != 0 {
		t.Errorf("counted: %+v", counts)
	}
	close(c.Hold)
	if err := c.Wait(within(t), func() bool { return len(c.Spans()) == 8 }); err != nil {
		t.Fatal(err)
	}
	tracer.Close()
	if counts, _ := tracer.Counts(); counts != (Counts{Sent: 8, Full: 12}) {
		t.Errorf("counted: %+v", counts)
	}
}

func TestExport_UsesTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	c := startCollector(t, nil)
	tracer, _ := newTracer(t, Config{Address: c.Address(), Insecure: true})
	_, span := tracer.Start(t.Context(), KindInternal, "not looked at")
	if carried := span.TraceParent(); !strings.HasSuffix(carried, "-00") {
		t.Errorf("others get %q", carried)
	}
	span.End()
	ctx := tracer.WithRemoteParent(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	_, span = tracer.Start(ctx, KindServer, "looked at")
	span.End()
	got := find(t, c, "looked at")
	if got.Resource["service.name"] != "mine" || got.Resource["deployment.environment"] != "test" || got.Trace != "0af7651916cd43dd8448eb211c80319c" || got.Parent != "b7ad6b7169203331" {
		t.Errorf("%+v", got)
	}
	tracer.Close()
	if len(c.Spans()) != 1 {
		t.Errorf("%+v", c.Spans())
	}
}

func TestExport_TLSByDefault(t *testing.T) {
	pair, ca := selfSigned(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	secure := startCollector(t, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
	tracer, _ := newTracer(t, Config{Address: secure.Address()})
	_, span := tracer.Start(t.Context(), KindInternal, "encrypted")
	span.End()
	find(t, secure, "encrypted")

	plain := startCollector(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_INSECURE", "true") // the flag decides
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	tracer, _ = newTracer(t, Config{Address: plain.Address()})
	_, span = tracer.Start(t.Context(), KindInternal, "in the open")
	span.End()
	tracer.Close()
	if plain.Requests() != 0 {
		t.Error("it spoke without TLS")
	}

	tracer, _ = newTracer(t, Config{Address: plain.Address(), Insecure: true}) // although there is a CA
	_, span = tracer.Start(t.Context(), KindInternal, "meant so")
	span.End()
	find(t, plain, "meant so")
}

func selfSigned(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
