package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// actor is who writes.
type actor struct {
	what string
	proc *process  // one of ours; nil for users and Argo CD
	mode kind.Mode // of an agent, when it sent the request
	why  string

	generation uint64 // of the hub that an agent followed, with two hubs
}

// cluster is an API server, its faults, and what runs next to it.
type cluster struct {
	w     *world
	name  string
	argo  string // Argo CD's namespace
	st    *store
	skew  engine.Time // of the clocks there
	hub   bool
	spoke *spoke // nil on the hub

	downUntil  engine.Time
	faultUntil engine.Time
	faultRate  int // percent of requests
	lagUntil   engine.Time
	lag        engine.Time
	prunes     bool // its CRD does not know a field
	crd        int  // counts the upgrades of its CRD
	denials    []denial
	backups    []*backup
}

func newCluster(w *world, name, argo string) *cluster {
	c := &cluster{w: w, name: name, argo: argo, st: newStore(name)}
	c.st.admit = c.admit
	c.st.changed = func(who actor, ch change) { w.changed(c, who, ch) }
	return c
}

func (c *cluster) down() bool { return c.w.now < c.downUntil }

func (c *cluster) fault() apiFault {
	if c.w.now >= c.faultUntil || !c.w.chance(c.faultRate) {
		return fine
	}
	return apiFault(1 + c.w.rng.IntN(int(apiFaults)-1))
}

// clock is the time as the processes of this cluster have it, in Kubernetes' form.
func (c *cluster) clock() string {
	return time.UnixMilli(int64(epoch + c.w.now + c.skew)).UTC().Format(time.RFC3339)
}

// epoch is when the world begins, on everybody's calendar.
const epoch engine.Time = 1_900_000_000_000

// ref names an object of this cluster.
func ref(r kind.Resource, namespace, name string) kind.Ref {
	return kind.Ref{Resource: r, Namespace: namespace, Name: name}
}

// edit changes an object as users and Argo CD do: read, change, write. It returns false if there is none, or the API
// server rejects it.
func (c *cluster) edit(who string, ref kind.Ref, change func(tree)) bool {
	o := c.st.get(ref)
	if o == nil || c.down() {
		return false
	}
	t := decode(o)
	change(t)
	_, err := c.st.update(actor{what: who}, ref.Resource, encode(t))
	if err != nil {
		c.w.tracef("%s: edit %s: %s", who, short(ref), err.reason)
	}
	return err == nil
}

func (c *cluster) create(who string, r kind.Resource, t tree) *kind.Object {
	if c.down() {
		return nil
	}
	o, err := c.st.create(actor{what: who}, r, encode(t))
	if err != nil {
		c.w.tracef("%s: create %s/%s: %s", who, digText(t, "metadata", "namespace"), digText(t, "metadata", "name"), err.reason)
		return nil
	}
	return o
}

func (c *cluster) remove(who string, ref kind.Ref) {
	if !c.down() {
		_, _ = c.st.delete(actor{what: who}, ref, "", "")
	}
}

// admit is what the API server does to an object before it stores it: some are refused, some are stored otherwise than
// they were sent.
func (c *cluster) admit(who actor, ref kind.Ref, o *kind.Object) (*kind.Object, *apiError) {
	s := &c.w.shape
	if c.hub && s.objectLimit > 0 && len(o.Raw()) > s.objectLimit {
		return nil, &apiError{"RequestEntityTooLarge", "the object is " + strconv.Itoa(len(o.Raw())) + " bytes, more than is stored"}
	}
	if ref.Resource != kind.Applications || c.hub {
		return o, nil
	}
	switch string(o.Get("spec", "source", "path")) {
	case `"poison"`:
		return nil, &apiError{"Invalid", "spec.source.path: poison is not supported"}
	case `"forbidden"`:
		return nil, &apiError{"Forbidden", "a policy of this cluster forbids it"}
	}
	if !c.prunes && !s.defaults {
		return o, nil
	}
	t := decode(o)
	if c.prunes {
		cut(t, "spec", "experimental")
	}
	if s.defaults && dig(t, "spec", "revisionHistoryLimit") == nil {
		put(t, 10, "spec", "revisionHistoryLimit")
	}
	return encode(t), nil
}

// small objects of our own that no process watches.
var (
	leases        = kind.Resource{Group: "coordination.k8s.io", Version: "v1", Plural: "leases", Kind: "Lease"}
	registrations = kind.Resource{Version: "v1", Plural: "registrations", Kind: "Registration"}
)

// memory is what a process keeps in its cluster about the other side.
type memory struct {
	Incarnation    uint64
	KnownCluster   string
	KnownStore     engine.Store
	StoreUntrusted bool
	Seen           string // by scope, as reconcile.FormatSeen has it
	Commands       string // begun last
	Hub            reconcile.KnownHub
	Mark           uint64 // of this cluster's own history
	Generation     engine.HubGeneration
	Removals       string // as engine.FormatRemovals has it
}

func (c *cluster) remember(who actor, r kind.Resource, name string, m memory) {
	if r == kind.Agents {
		c.rememberAgent(who, name, m)
		return
	}
	t := tree{"metadata": tree{"namespace": c.argo, "name": name}, "spec": tree{
		"incarnation": m.Incarnation, "cluster": m.KnownCluster,
		"store": m.KnownStore.UID, "revision": m.KnownStore.Revision, "record": m.KnownStore.Mark.Record, "knownMark": m.KnownStore.Mark.Number, "mark": m.Mark, "suspect": m.StoreUntrusted, "seen": m.Seen, "commands": m.Commands, "removals": m.Removals, "hub": hubTree(m.Hub), "generation": tree{"hub": m.Generation.Hub, "number": m.Generation.Number, "since": m.Generation.Since, "store": m.Generation.Store}}}
	o := encode(t)
	var err *apiError
	if c.st.get(ref(r, c.argo, name)) == nil {
		_, err = c.st.create(who, r, o)
	} else {
		_, err = c.st.update(who, r, o)
	}
	if err != nil {
		panic(fmt.Sprintf("remember %s: %s", name, err.message))
	}
}

func (c *cluster) recall(r kind.Resource, name string) memory {
	o := c.st.get(ref(r, c.argo, name))
	if o == nil {
		return memory{}
	}
	if r == kind.Agents {
		return recallAgent(o)
	}
	number := func(key string) uint64 { return numberAt(o, "spec", key) }
	t := decode(o)
	return memory{Incarnation: number("incarnation"), KnownCluster: digText(t, "spec", "cluster"),
		KnownStore: engine.Store{UID: digText(t, "spec", "store"), Revision: number("revision"),
			Mark: engine.HistoryMark{Record: digText(t, "spec", "record"), Number: number("knownMark")}},
		Mark:           number("mark"),
		Generation:     engine.HubGeneration{Hub: digText(t, "spec", "generation", "hub"), Number: numberAt(o, "spec", "generation", "number"), Since: numberAt(o, "spec", "generation", "since"), Store: digText(t, "spec", "generation", "store")},
		StoreUntrusted: dig(t, "spec", "suspect") == true, Seen: digText(t, "spec", "seen"), Commands: digText(t, "spec", "commands"), Removals: digText(t, "spec", "removals"),
		Hub: reconcile.KnownHub{Agent: digText(t, "spec", "hub", "agent"), Namespace: digText(t, "spec", "hub", "namespace"), Server: digText(t, "spec", "hub", "server"),
			ArgoNamespace: digText(t, "spec", "hub", "argoNamespace"), PrincipalUID: digText(t, "spec", "hub", "principalUID"),
			InstanceLabel: digText(t, "spec", "hub", "instanceLabel"), Mapping: digText(t, "spec", "hub", "mapping"), Projection: projection(o)}}
}

// historyMark returns the history mark in an object of this cluster.
func (c *cluster) historyMark(r kind.Resource, name string) engine.HistoryMark {
	o := c.st.get(ref(r, c.argo, name))
	if o == nil {
		return engine.HistoryMark{}
	}
	return engine.HistoryMark{Record: o.UID(), Number: c.recall(r, name).Mark}
}

func hubTree(h reconcile.KnownHub) tree {
	return tree{"agent": h.Agent, "namespace": h.Namespace, "server": h.Server, "argoNamespace": h.ArgoNamespace, "principalUID": h.PrincipalUID,
		"instanceLabel": h.InstanceLabel, "mapping": h.Mapping, "projection": h.Projection}
}

func projection(o *kind.Object) int {
	n, _ := strconv.Atoi(string(o.Get("spec", "hub", "projection")))
	return n
}
