package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// twoReplicas are two principal replicas that see the same objects. Only the second one hears that the agent is elsewhere. The
// agent connects to both, and has everything already.
type twoReplicas struct {
	*cluster
	now     engine.Time
	session uint64
	holds   bool // the agent holds deletions
	refused bool // the registration has changed since the agent connected
	each    [2]*Reconciler
	reads   [2]bool
	sent    [2]map[string]string // in the last session: deletions, and the last roots
}

func newTwoReplicas(t *testing.T) *twoReplicas {
	t.Helper()
	h := &twoReplicas{cluster: &cluster{t: t, objects: map[kind.Ref]*kind.Object{}, rev: 1}, now: 1_000_000}
	for i := range h.each {
		h.each[i] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"})
	}
	h.both(Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1"}})
	return h
}

func (h *twoReplicas) both(in Input) {
	for i := range h.each {
		h.step(i, in)
	}
}

// step passes an input to one replica, whose writes fail.
func (h *twoReplicas) step(i int, in Input) {
	h.now++
	for _, e := range slices.Clone(h.each[i].Step(h.now, in)) {
		switch e := e.(type) {
		case Write:
			h.step(i, WriteResult{ID: e.ID, Failure: &Failure{Code: engine.Unavailable}})
		case ReadApplications:
			h.reads[i] = true
		case ToPeer:
			if s, ok := e.Effect.(engine.Send); ok {
				h.received(i, s.Message)
			}
		}
	}
}

// received is the agent.
func (h *twoReplicas) received(i int, m engine.Message) {
	switch m := m.(type) {
	case engine.Bye:
		h.refused = h.refused || m.Code == engine.ShuttingDown
	case engine.Delta:
		ack := engine.Ack{Scope: m.Scope}
		for _, it := range m.Items {
			answer := engine.AckItem{Seq: it.Seq, Key: it.Key, Version: it.Version}
			if it.Gone {
				h.sent[i]["deletion of "+it.Key.Name] = it.DeletedUID
			}
			if it.Gone && h.holds {
				answer.Code = engine.OnHold
			}
			ack.Items = append(ack.Items, answer)
		}
		h.step(i, FromPeer{Agent: "w1", Input: engine.Received{Session: h.session, Message: ack}})
	case engine.Roots:
		for _, r := range m.Items {
			h.sent[i]["root of "+r.Scope] = fmt.Sprintf("%d %x", r.Count, r.Sum)
		}
	}
}

func (h *twoReplicas) list(resources ...kind.Resource) {
	for _, r := range resources {
		in := List{Resource: r, Revision: uint64(h.rev)}
		for _, ref := range sortedRefs(h.objects) {
			if ref.Resource == r {
				in.Objects = append(in.Objects, h.objects[ref])
			}
		}
		h.both(in)
	}
}

// write creates or changes an object. If it is not seen, a later list shows it.
func (h *twoReplicas) write(ref kind.Ref, body string, seen bool) {
	old := h.objects[ref]
	o := h.put(ref, []byte(body), old == nil)
	if old != nil {
		h.rev--
		o = h.put(ref, set(h.t, o.Raw(), `"`+old.UID()+`"`, "metadata", "uid"), false)
	}
	if seen {
		h.both(Observed{Resource: ref.Resource, Object: o})
	}
}

func (h *twoReplicas) remove(ref kind.Ref, seen bool) {
	old := h.objects[ref]
	if old == nil {
		return
	}
	delete(h.objects, ref)
	h.rev++
	if seen {
		h.both(Deleted{Ref: ref, UID: old.UID(), Revision: uint64(h.rev)})
	}
}

// answer answers what was read.
func (h *twoReplicas) answer() {
	in := ApplicationsRead{Namespace: "w1"}
	for _, r := range sortedRefs(h.objects) {
		if r.Resource == kind.Applications {
			in.Objects = append(in.Objects, h.objects[r])
		}
	}
	for i := range h.each {
		if h.reads[i] {
			h.reads[i] = false
			h.step(i, in)
		}
	}
}

// connect opens a session with each replica and lets two beacons pass. It returns how the sessions differ.
func (h *twoReplicas) connect(before func()) (differences []string) {
	h.session++
	h.refused = false
	h.sent = [2]map[string]string{{}, {}}
	h.both(FromPeer{Agent: "w1", Input: engine.Connected{Session: h.session, Store: engine.Store{UID: "h", Revision: uint64(h.rev)}}})
	before()
	h.list(kind.Applications, kind.AppProjects)
	h.both(FromPeer{Agent: "w1", Input: engine.Received{Session: h.session, Message: engine.Hello{Epoch: engine.Epoch{Incarnation: h.session}, Mode: "managed",
		ClusterUID: "c", Namespace: []string{"argocd", "gitops"}[h.rev%2],
		Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax}, Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax}}}})
	if h.refused { // it connects again at once
		return h.connect(func() {})
	}
	for range 2 {
		h.answer()
		h.now += 100_000
		h.both(Tick{})
	}
	for i := range h.each {
		status, _ := h.each[i].Status("w1")
		for _, s := range status.Scopes {
			h.sent[i]["items of "+s.Name] = fmt.Sprint(s.Items, " complete: ", s.Complete, status.Connected)
		}
	}
	h.both(FromPeer{Agent: "w1", Input: engine.Disconnected{Session: h.session}})
	keys := slices.Concat(slices.Collect(maps.Keys(h.sent[0])), slices.Collect(maps.Keys(h.sent[1])))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if h.sent[0][key] != h.sent[1][key] {
			differences = append(differences, fmt.Sprintf("%s: %q, want %q", key, h.sent[1][key], h.sent[0][key]))
		}
	}
	return differences
}

// randomChange changes objects, what the replicas see of them, the registration of the agent, and where it is.
func (h *twoReplicas) randomChange(chance *rand.Rand) {
	r, seen := ref("w1", string(rune('a'+chance.IntN(5)))), chance.IntN(10) > 0
	resource := []kind.Resource{kind.AppProjects, kind.Applications}[chance.IntN(2)]
	switch chance.IntN(14) {
	case 0, 1, 2:
		body := app("w1", r.Name, []string{"default", "default", "p", "unknown"}[chance.IntN(4)], fmt.Sprint("v", chance.IntN(3)))
		switch chance.IntN(8) {
		case 0:
			body = strings.Replace(body, `"name":"w1"`, `"name":"w2"`, 1)
		case 1:
			body = strings.Replace(body, `"metadata":{`, `"metadata":{"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"},`, 1)
		case 2:
			body = strings.Replace(body, `"metadata":{`, `"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"],`, 1)
		case 3:
			body = strings.Replace(body, `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["resources-finalizer.argocd.argoproj.io"],`, 1)
		}
		h.write(r, body, seen)
	case 3, 4:
		h.remove(r, seen)
	case 5:
		h.remove(projectRef("p"), seen)
	case 6:
		h.write(projectRef("p"), strings.Replace(openProject("p"), `{"name":"*"`, `{"name":"`+[]string{"*", "w2"}[chance.IntN(2)]+`"`, 1), seen)
	case 7:
		h.both(Unreadable{Resource: resource, Reason: "forbidden"})
	case 8:
		h.list(resource)
	case 9, 10:
		h.step(1, Elsewhere{Agents: map[string]bool{"w1": true}})
	case 11:
		h.step(1, Elsewhere{})
	case 12:
		h.answer()
	case 13: // its sync starts again, and what is read then is what the watch has shown
		h.list(kind.Applications)
		agent := h.each[0].syncs["w1"].env.Agent
		agent.Limits.Items = 100 + chance.IntN(2)
		h.both(Register{Agent: agent})
		h.answer()
	}
}

// An agent that was elsewhere gets the same in its next session as from a replica that kept everything.
func TestElsewhere_EqualsReplicaThatKeepsEverything(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 7))
		h := newTwoReplicas(t)
		h.write(projectRef("default"), openProject("default"), false)
		h.write(projectRef("p"), openProject("p"), false)
		resources := Resources()
		chance.Shuffle(len(resources), func(i, j int) { resources[i], resources[j] = resources[j], resources[i] })
		h.list(resources...)
		for range 3 {
			for range chance.IntN(20) {
				h.randomChange(chance)
			}
			h.holds = chance.IntN(2) == 0
			differences := h.connect(func() {
				for range chance.IntN(3) {
					h.randomChange(chance)
				}
			})
			if len(differences) > 0 {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(differences, "\n"))
			}
		}
	}
}
