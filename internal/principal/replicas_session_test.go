package principal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// replicated is a hub with several principals.
type replicated struct {
	t        *testing.T
	api      *memoryAPI
	restarts atomic.Bool // principals may end with an error
}

// config returns the configuration of a principal.
func (h *replicated) config(name string) Config {
	h.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(h.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	return h.settings(name, listener)
}

// settings returns the configuration of a principal with a listener.
func (h *replicated) settings(name string, listener net.Listener) Config {
	return Config{Cluster: h.api.config(), Namespace: "argocd", Mapping: kind.ByNamespace, ResourceProxy: "proxy:9090", Version: "test", Listener: listener,
		Revocations: &identity.Revocations{}, Replica: name, Log: slog.New(slog.DiscardHandler), Jitter: func() float64 { return 0.5 },
		Authenticate: func(c transport.Credentials) (transport.Peer, error) {
			if names := c.Header("agent"); len(names) == 1 {
				return transport.Peer{Agent: names[0]}, nil
			}
			return transport.Peer{}, errors.New("no name")
		}}
}

// start runs a principal until the test ends, and returns where agents reach it.
func (h *replicated) start(name string, configure ...func(*Config)) (address string) {
	h.t.Helper()
	cfg := h.config(name)
	for _, f := range configure {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("principal %s ended with %v", name, err)
		}
	})
	return cfg.Listener.Addr().String()
}

const agentPath = "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/namespaces/argocd/agents/"

func (h *replicated) declare(name string) {
	h.api.put(agentPath+name, map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": name, "namespace": "argocd", "finalizers": []any{v1alpha1.Finalizer}}, "spec": map[string]any{"mode": "managed"}})
}

func (h *replicated) status(name string) v1alpha1.Status {
	h.t.Helper()
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	b, err := json.Marshal(h.api.objects[agentPath+name])
	if err != nil {
		h.t.Fatal(err)
	}
	var a v1alpha1.Agent
	if err := json.Unmarshal(b, &a); err != nil {
		h.t.Fatal(err)
	}
	return a.Status
}

// caller is one connection of an agent's process, with what the hub said to it.
type caller struct {
	hello engine.Hello
	stop  context.CancelFunc

	mu      sync.Mutex
	welcome bool
	uid     string // of the principal
	store   engine.Store
	ended   *transport.ByeError
}

// call connects an agent with a principal, once.
func (h *replicated) call(address, cluster string, epoch engine.Epoch) *caller {
	h.t.Helper()
	return h.callKnowing(address, cluster, epoch, engine.Store{})
}

// callKnowing connects an agent that knows the hub's store.
func (h *replicated) callKnowing(address, cluster string, epoch engine.Epoch, known engine.Store) *caller {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &caller{stop: cancel, hello: engine.Hello{Epoch: epoch, ClusterUID: cluster, Mode: "managed", Mapping: "namespace", Namespace: "argocd",
		Store: engine.Store{UID: cluster, Revision: 7}, Known: known, Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax}, Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax}}}
	d := transport.NewDialer(transport.DialerConfig{Events: c, Log: slog.New(slog.DiscardHandler),
		Connectors: []transport.Connector{grpc.NewConnector(grpc.ClientConfig{Address: address, Metadata: []string{"agent", "w1"}})}})
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	h.t.Cleanup(func() { cancel(); <-done })
	return c
}

func (c *caller) Connected(conn *transport.Conn) { _ = conn.Send(c.hello) }

func (c *caller) Received(conn *transport.Conn, m engine.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if welcome, ok := m.(engine.Welcome); ok {
		c.welcome, c.uid, c.store = true, welcome.PrincipalUID, welcome.Store
		conn.Established()
	}
}

func (c *caller) Disconnected(_ *transport.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bye, ok := errors.AsType[*transport.ByeError](err); ok && bye.Code != engine.ShuttingDown && (c.welcome || bye.Code != engine.Unavailable) {
		c.ended = bye
		c.stop() // else it would dial again
	}
}

func (c *caller) welcomed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome
}

func (c *caller) principalUID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uid
}

func (c *caller) end() *transport.ByeError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// An agent and a clone of it in another cluster come at the same time, each to
// another principal, before the hub knows which cluster is the agent's. One of them
// is; the other is refused.
func TestReplicas_RefuseCloneOfAgent(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")

	// No record of a cluster is written before both are about to write one,
	// or let the agent in without.
	gate := make(chan struct{})
	var mu sync.Mutex
	records := map[string]bool{}
	h.api.patching = func(path string, body []byte) {
		for _, cluster := range []string{"cluster-a", "cluster-b"} {
			if strings.Contains(path, "/agents/w1") && strings.Contains(string(body), fmt.Sprintf(`"clusterUID":%q`, cluster)) {
				mu.Lock()
				records[cluster] = true
				mu.Unlock()
				<-gate
			}
		}
	}
	first, second := h.start("first"), h.start("second")
	eventually(t, "both principals know the agent", func() bool { return len(h.status("w1").Conditions) >= 2 })
	callers := map[string]*caller{"cluster-a": h.call(first, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1}),
		"cluster-b": h.call(second, "cluster-b", engine.Epoch{Incarnation: 9, Attempt: 1})}
	eventually(t, "both have come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for cluster, c := range callers {
			if !records[cluster] && !c.welcomed() {
				return false
			}
		}
		return true
	})
	close(gate)

	eventually(t, "one of them is refused and the other accepted", func() bool {
		a, b := callers["cluster-a"], callers["cluster-b"]
		return (a.end() == nil) != (b.end() == nil) && (a.end() != nil || a.welcomed()) && (b.end() != nil || b.welcomed())
	})
	recorded := h.status("w1").ClusterUID
	for cluster, c := range callers {
		if end := c.end(); (cluster == recorded) != (end == nil) || end != nil && end.Code != engine.WrongCluster && end.Code != engine.Superseded {
			t.Errorf("recorded is %s; that of %s ended with %v", recorded, cluster, end)
		}
	}
}

// A clone of a connected agent gets the reason, also if its process is older.
func TestReplicas_OlderCloneGetsTheReason(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	address := h.start("first")
	agent := h.call(address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", func() bool { return agent.welcomed() && h.status("w1").ClusterUID == "cluster-a" })
	clone := h.call(address, "cluster-b", engine.Epoch{Incarnation: 4, Attempt: 1})
	eventually(t, "the clone is refused", func() bool { return clone.end() != nil })
	if clone.end().Code != engine.WrongCluster || agent.end() != nil {
		t.Errorf("the clone ended with %v, the agent with %v", clone.end(), agent.end())
	}
}

// The connection of an agent breaks, and the principal does not notice. The agent is
// connected with another one by then: the older session ends.
func TestReplicas_NewerSessionEndsOlderOne(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	first, second := h.start("first"), h.start("second")
	older := h.call(first, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", func() bool { return older.welcomed() && h.status("w1").Principal == "first" })
	newer := h.call(second, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 2})
	eventually(t, "it is connected with the other principal", func() bool { return newer.welcomed() && h.status("w1").Principal == "second" })
	eventually(t, "its older session ends", func() bool { return older.end() != nil })
	if older.end().Code != engine.Superseded || newer.end() != nil {
		t.Errorf("the older one ended with %v, the newer one with %v", older.end(), newer.end())
	}

	// A process of it that is older still may go on trying.
	again := h.call(first, "cluster-a", engine.Epoch{Incarnation: 4, Attempt: 9})
	eventually(t, "the older process is refused", func() bool { return again.end() != nil })
	if again.end().Code != engine.Superseded || again.welcomed() {
		t.Errorf("it was welcomed: %v, and ended with %v", again.welcomed(), again.end())
	}
	if s := h.status("w1"); !s.Connected || s.Principal != "second" || *s.Session != (v1alpha1.Session{Incarnation: 5, Attempt: 2}) {
		t.Errorf("the status is of %s, session %+v", s.Principal, s.Session)
	}

	// When the newer one is gone, nothing blocks it, whatever its clock said.
	newer.stop()
	eventually(t, "the newer session is over", func() bool { return !h.status("w1").Connected })
	last := h.call(first, "cluster-a", engine.Epoch{Incarnation: 4, Attempt: 10})
	eventually(t, "the agent is connected again", last.welcomed)
}

// An agent gets the history mark that the hub's store has, with each principal and after a restore of the hub. Then no new
// mark is recorded.
func TestReplicas_HistoryMarkOfTheStore(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	first, second := h.start("first"), h.start("second")
	eventually(t, "both principals know the agent", func() bool { return len(h.status("w1").Conditions) >= 2 })
	h.api.mu.Lock()
	uid, _ := h.api.objects[agentPath+"w1"]["metadata"].(map[string]any)["uid"].(string)
	h.api.mu.Unlock()
	connect := func(address string, attempt, known uint64) engine.HistoryMark {
		t.Helper()
		c := h.callKnowing(address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: attempt}, engine.Store{UID: "any", Revision: 1, Mark: engine.HistoryMark{Record: "record", Number: known}})
		eventually(t, "the agent is connected", c.welcomed)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.store.Mark
	}
	if got := connect(first, 1, 0); !strings.HasPrefix(got.Record, uid+"-") || got.Number != 0 || uid == "" {
		t.Errorf("before the first mark: %+v", got)
	}
	record := func(number uint64) {
		client, err := kube.NewClient(h.api.config())
		if err != nil {
			t.Fatal(err)
		}
		ref := kind.Ref{Resource: fleet.AgentResource, Namespace: "argocd", Name: "w1"}
		if _, err := client.PatchStatus(t.Context(), ref, map[string]any{"status": map[string]any{"historyMark": number, "historyRecord": "record"}}); err != nil {
			t.Fatal(err)
		}
	}
	record(6)
	if got := connect(second, 2, 6); got != (engine.HistoryMark{Record: "record", Number: 6}) {
		t.Errorf("with the other principal: %+v", got)
	}
	record(3) // as after a restore
	if got := connect(first, 3, 7); got != (engine.HistoryMark{Record: "record", Number: 3}) {
		t.Errorf("after a restore: %+v", got)
	}
	if got := h.status("w1").HistoryMark; got != 3 {
		t.Errorf("mark %d is recorded, and the agent knows a lost one", got)
	}
}
