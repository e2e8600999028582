package grpc

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// BenchmarkRoundTrip is the time of one message there and one back.
func BenchmarkRoundTrip(b *testing.B) {
	ca := newCA(b, "ca")
	h := startHub(b, hubConfig{TLS: ca.serverTLS()})
	h.received = func(c *transport.Conn, m engine.Message) { _ = c.Send(m) }
	s := dial(b, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent := s.next("connected").conn
	b.ReportAllocs()
	for b.Loop() {
		must(b, agent.Send(roots(1)))
		s.next("received")
	}
}

// BenchmarkThroughput sends items of 4 KiB, many to a message.
func BenchmarkThroughput(b *testing.B) {
	ca := newCA(b, "ca")
	h := startHub(b, hubConfig{TLS: ca.serverTLS()})
	got := make(chan struct{}, 1<<20)
	h.received = func(*transport.Conn, engine.Message) { got <- struct{}{} }
	s := dial(b, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-a")})
	agent := s.next("connected").conn
	delta := engine.Delta{Scope: "application"}
	for i := range 64 {
		delta.Items = append(delta.Items, engine.DeltaItem{Seq: uint64(i), Key: engine.Key{Name: "x"}, Content: make([]byte, 4<<10)})
	}
	b.SetBytes(64 * 4 << 10)
	b.ReportAllocs()
	sent, done := 0, 0
	for b.Loop() {
		must(b, agent.Send(delta))
		for sent++; sent-done > 8; done++ {
			<-got
		}
	}
	for ; done < sent; done++ {
		<-got
	}
}

// BenchmarkIdleConnection is the hub's memory for an agent that is connected
// and says nothing. The agents are in a process of their own.
func BenchmarkIdleConnection(b *testing.B) {
	const agents = 500
	ca := newCA(b, "ca")
	h := startHub(b, hubConfig{TLS: ca.serverTLS(), Limits: Limits{ConnsPerAgent: agents}})
	dir := b.TempDir()
	cert := ca.issue("agent-a", time.Hour)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	must(b, err)
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key},
		"ca.crt":  {Type: "CERTIFICATE", Bytes: ca.cert.Raw},
	} {
		must(b, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	before := inUse()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchmark_AgentsConnect$")
	cmd.Env = append(os.Environ(), "LINK_HUB="+h.address, "LINK_CERTIFICATES="+dir, "LINK_AGENTS="+strconv.Itoa(agents))
	stdin, err := cmd.StdinPipe()
	must(b, err)
	must(b, cmd.Start())
	h.next("connected")
	begin := time.Now()
	for range agents - 1 {
		h.next("connected")
	}
	rate := (agents - 1) / time.Since(begin).Seconds()
	memory, goroutines := float64(inUse()-before)/agents, float64(runtime.NumGoroutine())/agents
	must(b, stdin.Close())
	must(b, cmd.Wait())
	for b.Loop() { // it is not time that is measured
	}
	b.ReportMetric(memory, "B/conn")
	b.ReportMetric(rate, "connects/s")
	b.ReportMetric(goroutines, "goroutines/conn")
	b.ReportMetric(0, "ns/op")
}

func inUse() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestBenchmark_AgentsConnect(t *testing.T) {
	address := os.Getenv("LINK_HUB")
	if address == "" {
		t.Skip("is a process of BenchmarkIdleConnection")
	}
	dir := os.Getenv("LINK_CERTIFICATES")
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	must(t, err)
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	agents, err := strconv.Atoi(os.Getenv("LINK_AGENTS"))
	must(t, err)
	for range agents {
		dial(t, spokeConfig{Address: address, TLS: func() (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{cert}}, nil
		}})
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the hub has seen enough
}
