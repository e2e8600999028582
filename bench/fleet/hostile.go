package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// This file is the process of a hostile agent. It is authenticated as an autonomous agent, and sends as much as it can.

// hostileVariable has the configuration of this process if it is a hostile agent.
const hostileVariable = "BENCH_FLEET_HOSTILE"

// hostileConfig is what a hostile agent needs. Without a server, it only takes what the machine has left of its cores.
type hostileConfig struct{ Server, Name, Cert, Key, CA string }

// hostileCounts is what a hostile agent has done.
type hostileCounts struct {
	Messages, Bytes, Sessions, Attempts int64
	LastReason                          string // why its last session ended
}

// hostileProcess is a running hostile agent.
type hostileProcess struct {
	command *exec.Cmd
	stop    io.WriteCloser
	result  strings.Builder
}

// startHostile starts a hostile agent. In a real fleet it has a machine of its own, so it gets the lowest priority here.
func startHostile(ctx context.Context, cfg hostileConfig) (*hostileProcess, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	file, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &hostileProcess{command: exec.CommandContext(ctx, file)}
	p.command.Env = append(os.Environ(), hostileVariable+"="+string(text))
	p.command.Stdout, p.command.Stderr = &p.result, os.Stderr
	if p.stop, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.command.Start()
}

// end stops the hostile agent and returns what it has done.
func (p *hostileProcess) end() (counts hostileCounts, err error) {
	_ = p.stop.Close()
	if err := p.command.Wait(); err != nil {
		return counts, fmt.Errorf("hostile agent: %w", err)
	}
	return counts, json.Unmarshal([]byte(p.result.String()), &counts)
}

// hostileAgent is the agent within its process.
type hostileAgent struct {
	hostileConfig
	tls *tls.Config

	messages, bytes, sessions, attempts atomic.Int64
	incarnation                         atomic.Uint64

	mu     sync.Mutex
	reason string
}

// runHostile is the main function of a hostile agent. It ends with the standard input.
func runHostile(text string) error {
	h := &hostileAgent{}
	if err := json.Unmarshal([]byte(text), &h.hostileConfig); err != nil {
		return err
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("set priority: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if h.Server == "" {
		compute(ctx)
		return json.NewEncoder(os.Stdout).Encode(hostileCounts{})
	}
	cert, err := tls.LoadX509KeyPair(h.Cert, h.Key)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(h.CA)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	h.tls = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { h.connect(ctx) })
	}
	dialer := transport.NewDialer(transport.DialerConfig{
		Connectors: []transport.Connector{grpc.NewConnector(grpc.ClientConfig{Address: h.Server, TLS: func() (*tls.Config, error) { return h.tls.Clone(), nil }, Dial: h.dial})},
		Events:     h, Log: slog.New(slog.DiscardHandler), Queue: 64 << 20,
		Wait: func(context.Context, time.Duration) error { pause(ctx, 10*time.Millisecond); return ctx.Err() }})
	err = dialer.Run(ctx)
	wg.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := hostileCounts{h.messages.Load(), h.bytes.Load(), h.sessions.Load(), h.attempts.Load(), h.reason}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(counts)
	}
	return err
}

// compute uses all cores until ctx ends.
func compute(ctx context.Context) {
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for sum := [sha256.Size]byte{}; ctx.Err() == nil; {
				sum = sha256.Sum256(sum[:])
			}
		})
	}
	wg.Wait()
}

// dial connects from an address of its own, as an agent on another machine.
func (h *hostileAgent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, network, address)
}

// connect opens connections at full rate. Every second one has no certificate. They send nothing after the handshake.
func (h *hostileAgent) connect(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		raw, err := h.dial(ctx, "tcp", h.Server)
		if err != nil {
			pause(ctx, time.Millisecond) // no free port, or no route to the address
			continue
		}
		h.attempts.Add(1)
		cfg := h.tls.Clone()
		if i%2 == 1 {
			cfg.Certificates = nil
		}
		_ = raw.SetDeadline(time.Now().Add(5 * time.Second))
		conn := tls.Client(raw, cfg)
		if conn.HandshakeContext(ctx) == nil {
			_, _ = conn.Read(make([]byte, 1))
		}
		_ = raw.Close()
	}
}

// Connected implements transport.Events.
func (h *hostileAgent) Connected(c *transport.Conn) {
	h.sessions.Add(1)
	_ = c.Send(engine.Hello{
		Epoch: engine.Epoch{Incarnation: uint64(time.Now().UnixMilli()), Attempt: h.incarnation.Add(1)}, ClusterUID: "cluster-" + h.Name, Mode: string(kind.Autonomous),
		Mapping: string(kind.ByNamespace), Namespace: argocd, Version: "bench", Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax},
		Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax},
		Store:      engine.Store{UID: "cluster-" + h.Name, Revision: uint64(time.Now().UnixMilli())}, ClockMillis: time.Now().UnixMilli()})
}

// Received implements transport.Events. It reads everything and answers nothing.
func (h *hostileAgent) Received(c *transport.Conn, m engine.Message) {
	if _, ok := m.(engine.Welcome); ok {
		c.Established()
		go h.flood(c)
	}
}

// Disconnected implements transport.Events.
func (h *hostileAgent) Disconnected(_ *transport.Conn, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.reason = err.Error()
	}
}

// flood sends messages until the connection ends.
func (h *hostileAgent) flood(c *transport.Conn) {
	for seq := uint64(1); ; seq += 2000 {
		for _, m := range h.burst(seq) {
			for c.Queued() > 16<<20 {
				select {
				case <-c.Done():
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
			before := c.Queued()
			if c.Send(m) != nil {
				return
			}
			h.messages.Add(1)
			h.bytes.Add(int64(max(0, c.Queued()-before)))
		}
	}
}

// burst returns one message of each sort: changes of existing Applications, new Applications, large ones, invalid ones,
// AppProjects, Held, comparisons and requests.
func (h *hostileAgent) burst(seq uint64) []engine.Message {
	app := func(i int, extra string) engine.DeltaItem {
		content := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":%q}},"spec":{"destination":{"name":%q,"namespace":"x"},"project":%q,"source":{"repoURL":"https://git.example.org/x","targetRevision":"n%d"}},"uid":"u-%d"}`,
			extra, h.Name, h.Name+"-default", seq, i)
		return engine.DeltaItem{Key: engine.Key{Name: fmt.Sprintf("x-%d", i)}, Content: content, Version: engine.VersionOf(content)}
	}
	list := func(scope string, n int, item func(i int) engine.DeltaItem) engine.Delta {
		d := engine.Delta{Scope: scope}
		for i := range n {
			it := item(i)
			seq++
			it.Seq = seq
			d.Items = append(d.Items, it)
		}
		return d
	}
	held := engine.Held{Scope: kind.ApplicationScope, ID: fmt.Sprint("h", seq), Count: seq, Of: seq, Reason: strings.Repeat("x", 500)}
	for i := range 10 {
		held.Sample = append(held.Sample, engine.Key{Name: fmt.Sprint("x-", i)})
	}
	return []engine.Message{
		list(kind.ApplicationScope, 128, func(i int) engine.DeltaItem { return app(i, "") }),
		list(kind.ApplicationScope, 500, func(int) engine.DeltaItem { return app(1000+rand.IntN(100_000), "") }),
		list(kind.ApplicationScope, 3, func(int) engine.DeltaItem { return app(200_000+rand.IntN(1000), strings.Repeat("x", 900<<10)) }),
		list(kind.ApplicationScope, 500, func(i int) engine.DeltaItem {
			it := app(i, "")
			it.Version = engine.VersionOf(nil)
			return it
		}),
		list(kind.AppProjectScope, 100, func(i int) engine.DeltaItem { return app(i, "") }),
		held,
		engine.Roots{Items: []engine.Root{{Scope: kind.ApplicationScope, Count: seq, Sum: engine.Sum{Hi: rand.Uint64()}}}},
		engine.Want{Scope: kind.ApplicationScope, Hashes: []engine.KeyHash{1, 2, 3}},
	}
}
