package principal

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

const hubLeasePath = "/apis/coordination.k8s.io/v1/namespaces/leases/leases/argocd-agent-hub"

// leased is a hub with a Lease in a third cluster.
type leased struct {
	*replicated
	third  *memoryAPI
	maxLag time.Duration
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	h := &leased{replicated: &replicated{t: t, api: newMemoryAPI(t)}, third: newMemoryAPI(t)}
	h.declare("w1")
	return h
}

func (h *leased) startWith(duration time.Duration) *hubProcess {
	return h.startOnce(func(cfg *Config) {
		cfg.HubLease = hublease.Settings{Cluster: h.third.config(), Namespace: "leases", Name: "argocd-agent-hub", Duration: duration, MaxLag: h.maxLag}
	})
}

func (h *leased) putLease(identity, holder, generation string) {
	h.third.put(hubLeasePath, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": "argocd-agent-hub", "namespace": "leases", "annotations": map[string]any{
			kind.Prefix + "hub-identity": identity, kind.Prefix + "hub-generation": generation}},
		"spec": map[string]any{"holderIdentity": holder, "leaseDurationSeconds": 1}})
}

// lease returns holder and generation.
func (h *leased) lease() (any, any) {
	o := h.third.get(hubLeasePath)
	spec, _ := o["spec"].(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return spec["holderIdentity"], annotations[kind.Prefix+"hub-generation"]
}

func (h *leased) hubStateIs() map[string]any {
	data, _ := h.api.get(hubStatePath)["data"].(map[string]any)
	return data
}

func (h *leased) clusterUID() any {
	meta, _ := h.api.get("/api/v1/namespaces/kube-system")["metadata"].(map[string]any)
	return meta["uid"]
}

// An active hub gets the Lease before it serves agents.
func TestHubLease_ActiveHubHoldsIt(t *testing.T) {
	h := newLeased(t)
	h.api.putHubState(hubState("active", "3"))
	p := h.startWith(time.Hour)
	c := h.call(p.address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", c.welcomed)
	if holder, generation := h.lease(); holder != h.clusterUID() || generation != "3" {
		t.Errorf("the Lease is held by %v, generation %v", holder, generation)
	}
}

// A hub that is not sure to be the only active one refuses agents and is not ready.
func TestHubLease_OfAnotherGroupRefusesAgents(t *testing.T) {
	h := newLeased(t)
	h.api.putHubState(hubState("active", "3"))
	h.putLease("group-2", "uid-of-other", "1")
	p := h.startWith(time.Hour)
	h.refusal(p, `the Lease belongs to the hubs of identity "group-2"`)
	if code, body := h.healthOf(p); code != http.StatusServiceUnavailable || !strings.Contains(body, "does not hold the Lease") {
		t.Errorf("health %d %s", code, body)
	}
}

// A hub that returns after another one has taken over becomes its standby.
func TestHubLease_SupersededHubBecomesStandby(t *testing.T) {
	h := newLeased(t)
	h.api.putHubState(hubState("active", "1"))
	h.putLease("group-1", "uid-of-other", "2")
	p := h.startWith(time.Hour)
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "start again") {
		t.Fatalf("ended with %v", err)
	}
	if s := h.hubStateIs(); s["role"] != "standby" || s["generation"] != "2" || s["predecessor"] != "uid-of-other/0" {
		t.Errorf("the state is %v", s)
	}
	if holder, generation := h.lease(); holder != "uid-of-other" || generation != "2" {
		t.Errorf("the Lease is held by %v, generation %v", holder, generation)
	}
}

// A standby that has received everything takes over if the Lease expires.
func TestHubLease_StandbyTakesOver(t *testing.T) {
	h := newLeased(t)
	state := hubState("standby", "1")
	h.api.putHubState(state)
	h.putLease("group-1", "uid-of-other", "1")
	p := h.startWith(3 * time.Second)
	h.refusal(p, "this hub is a standby")
	received := hubState("standby", "1") // replication is complete while the process runs
	received["predecessor"] = "uid-of-other/7"
	h.api.putHubState(received)
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "start again") {
		t.Fatalf("ended with %v", err)
	}
	if s := h.hubStateIs(); s["role"] != "active" || s["generation"] != "2" || s["predecessor"] != "uid-of-other/7" {
		t.Errorf("the state is %v", s)
	}
	if holder, generation := h.lease(); holder != h.clusterUID() || generation != "2" {
		t.Errorf("the Lease is held by %v, generation %v", holder, generation)
	}
}

// A standby that last had everything too long ago does not take over, and agents get the reason. The record is that of the
// ConfigMap, so that it holds for a process that starts.
func TestHubLease_StandbyThatLacksTooMuchWaits(t *testing.T) {
	h := newLeased(t)
	h.maxLag = 10 * time.Minute
	put := func(at time.Time) {
		data := hubState("standby", "1")
		data["predecessor"] = "uid-of-other/7"
		h.api.put(hubStatePath, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data,
			"metadata": map[string]any{"name": hubstate.ConfigMap, "namespace": "argocd", "annotations": map[string]any{kind.Prefix + "received-at": at.UTC().Format(time.RFC3339)}}})
	}
	put(time.Now().Add(-time.Hour))
	h.putLease("group-1", "uid-of-other", "1")
	p := h.startWith(3 * time.Second)
	h.refusal(p, "is lost, but this standby last had all objects of the active hub at ")
	if code, body := h.healthOf(p); code != http.StatusOK {
		t.Errorf("health %d %s", code, body)
	}
	if s := h.hubStateIs(); s["role"] != "standby" || s["generation"] != "1" {
		t.Errorf("the state is %v", s)
	}
	put(time.Now()) // it has everything again
	if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "start again") {
		t.Fatalf("ended with %v", err)
	}
	if s := h.hubStateIs(); s["role"] != "active" || s["generation"] != "2" {
		t.Errorf("the state is %v", s)
	}
}
