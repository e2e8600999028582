package principal

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

const hubStatePath = "/api/v1/namespaces/argocd/configmaps/" + hubstate.ConfigMap

func (a *memoryAPI) putHubState(data map[string]any) {
	a.put(hubStatePath, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": hubstate.ConfigMap, "namespace": "argocd"}, "data": data})
}

func hubState(role, generation string) map[string]any {
	return map[string]any{"identity": "group-1", "role": role, "generation": generation}
}

// hubProcess is a principal that runs until the state of its hub changes.
type hubProcess struct {
	address, health string
	ended           chan error
}

func (h *replicated) startOnce(configure ...func(*Config)) *hubProcess {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &hubProcess{ended: make(chan error, 1)}
	cfg := h.config("first")
	for _, f := range configure {
		f(&cfg)
	}
	var err error
	if cfg.HealthListener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		h.t.Fatal(err)
	}
	p.address, p.health = cfg.Listener.Addr().String(), cfg.HealthListener.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { p.ended <- Run(ctx, cfg) })
	h.t.Cleanup(func() { cancel(); wg.Wait() })
	return p
}

// refusal connects an agent until it is refused with a text.
func (h *replicated) refusal(p *hubProcess, want string) {
	h.t.Helper()
	c := grpc.NewConnector(grpc.ClientConfig{Address: p.address, Metadata: []string{"agent", "w1"}})
	eventually(h.t, "an agent is refused: "+want, func() bool {
		session, err := c.Connect(h.t.Context(), &transport.Counters{}, nil)
		if err == nil {
			session.Close()
			h.t.Fatal("an agent was accepted")
		}
		refused, ok := errors.AsType[*transport.RefusedError](err)
		return ok && strings.Contains(refused.Message, want) && refused.RetryAfter > 0
	})
}

func (h *replicated) healthOf(p *hubProcess) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+p.health+"/healthz", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// A standby serves no agents, gives them the reason, and writes nothing. After its promotion the process ends, and the next one
// serves agents under the identity of the group.
func TestHubState_StandbyRefusesAgentsUntilPromoted(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	h.api.putHubState(hubState("standby", "1"))
	before := h.api.currentRevision()
	p := h.startOnce()
	h.refusal(p, "this hub is a standby")
	if code, body := h.healthOf(p); code != http.StatusOK {
		t.Errorf("health %d %s", code, body)
	}
	if after := h.api.currentRevision(); after != before {
		t.Errorf("a standby wrote: revision %d, then %d", before, after)
	}
	updated := hubState("standby", "1")
	updated["predecessor"] = "store-1/7"
	h.api.putHubState(updated) // replication updates it all the time
	h.refusal(p, "this hub is a standby")

	h.api.putHubState(hubState("active", "2"))
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "changed from (standby, generation 1, identity group-1) to (active, generation 2, identity group-1)") {
		t.Errorf("ended with %v", err)
	}
	p = h.startOnce()
	c := h.call(p.address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", c.welcomed)
	if uid := c.principalUID(); uid != "group-1" {
		t.Errorf("the principal UID is %q", uid)
	}

	h.api.putHubState(hubState("standby", "2"))
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "to (standby, generation 2") {
		t.Errorf("demoted, ended with %v", err)
	}
}

// A state that cannot be read could be that of a standby.
func TestHubState_InvalidStateRefusesAgents(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	h.api.putHubState(hubState("leader", "1"))
	p := h.startOnce()
	h.refusal(p, `role "leader": must be active or standby`)
	if code, body := h.healthOf(p); code != http.StatusServiceUnavailable || !strings.Contains(body, hubstate.ConfigMap) {
		t.Errorf("health %d %s", code, body)
	}
}

// Without the ConfigMap a hub is alone. One that says the same changes nothing.
func TestHubState_WithoutConfigMapTheHubIsActive(t *testing.T) {
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	p := h.startOnce()
	c := h.call(p.address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", c.welcomed)
	uid := c.principalUID()
	if !strings.HasPrefix(uid, "uid-") {
		t.Errorf("the principal UID is %q", uid)
	}
	h.api.putHubState(map[string]any{"identity": uid, "role": "active", "generation": "1"})
	h.api.putHubState(map[string]any{"identity": uid, "role": "active", "generation": "2"})
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "from (active, generation 1") {
		t.Errorf("ended with %v", err)
	}
}
