package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// hubs connects an active hub with a standby. Their clusters have these objects before.
type hubs struct {
	*pair
	wrote []Write // on the standby
}

// newHubs returns a pair whose spoke is the standby. The stores may have objects.
func newHubs(t *testing.T, active, standby *cluster, change ...func(activeCfg, standbyCfg *Config)) *hubs {
	t.Helper()
	h := &hubs{pair: &pair{t: t, now: 1_000_000, stores: [2]*cluster{active, standby}}}
	a := Config{Side: kind.Hub, Mode: kind.Standby, ArgoNamespace: "argocd", ClusterUID: "h", PrincipalUID: "principal-1", Kinds: kind.StandbyKinds()}
	s := Config{Side: kind.Spoke, Mode: kind.Standby, ArgoNamespace: "argocd", ClusterUID: "s", PrincipalUID: "principal-1", Kinds: kind.StandbyKinds()}
	for _, f := range change {
		f(&a, &s)
	}
	h.sides = [2]*Reconciler{New(a), New(s)}
	h.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Standby}})
	for side := range h.sides {
		for _, r := range kind.Resources(kind.StandbyKinds()) {
			list := List{Resource: r, Revision: uint64(h.stores[side].rev)}
			for ref, o := range h.stores[side].objects {
				if ref.Resource == r {
					list.Objects = append(list.Objects, o)
				}
			}
			h.step(kind.Side(side), list)
		}
	}
	h.hook = h.apply
	h.revision = uint64(max(active.rev, standby.rev))
	return h
}

// apply keeps objects with finalizers when they are deleted, and fails on any write of the active hub.
func (h *hubs) apply(side kind.Side, w Write) bool {
	if side == kind.Hub {
		h.t.Errorf("the active hub writes %v %s", w.Verb, w.Ref.Name)
		return true
	}
	h.wrote = append(h.wrote, w)
	store := h.stores[side]
	local := store.objects[w.Ref]
	switch {
	case w.Verb == Delete && len(local.Finalizers()) > 0:
		o := store.put(w.Ref, set(h.t, local.Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp"), false)
		h.step(side, WriteResult{ID: w.ID, Object: o})
	case w.Verb == Update && local.IsDeleting() && len(w.Object.Finalizers()) == 0:
		delete(store.objects, w.Ref)
		h.step(side, WriteResult{ID: w.ID, Object: w.Object})
		h.step(side, Deleted{Ref: w.Ref, UID: local.UID()})
	default:
		return false
	}
	return true
}

func emptyCluster(t *testing.T, uids int) *cluster {
	t.Helper()
	return &cluster{t: t, objects: map[kind.Ref]*kind.Object{}, rev: 1, uids: uids}
}

func (c *cluster) with(ref kind.Ref, body string) *cluster {
	c.put(ref, []byte(body), true)
	return c
}

func refOfKind(r kind.Resource, name string) kind.Ref {
	return kind.Ref{Resource: r, Namespace: "argocd", Name: name}
}

func standbyObject(r kind.Resource, name, labels, rest string) string {
	group := r.Version
	if r.Group != "" {
		group = r.Group + "/" + r.Version
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":"argocd","labels":{%s}},%s}`, group, r.Kind, name, labels, rest)
}

var (
	gitSecret = standbyObject(kind.Secrets, "repo", `"argocd.argoproj.io/secret-type":"repository"`, `"data":{"url":"aHR0cHM6Ly9naXQveA=="},"type":"Opaque"`)
	agentW1   = standbyObject(kind.Agents, "w1", ``, `"spec":{"mode":"managed"},"status":{"clusterUID":"spoke","connected":true,"store":{"revision":5,"uid":"spoke"}}`)
)

func (h *hubs) standbyHas(r kind.Ref) *kind.Object { return h.stores[kind.Spoke].objects[r] }

// beat lets both sides send beacons.
func (h *hubs) beat() { h.waitSeconds(120) }

func (h *hubs) rejected(text string) bool {
	return slices.ContainsFunc(h.events, func(f engine.Event) bool { return f.Type == engine.Rejected && strings.Contains(f.Message, text) })
}

func canonical(t *testing.T, b []byte) string {
	t.Helper()
	if b == nil {
		return ""
	}
	c, err := rawjson.Canonical(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(c)
}

func withOperation(t *testing.T, body, operation string) string {
	t.Helper()
	return string(set(t, []byte(body), operation, "operation"))
}

// A standby gets every object, and after its promotion publishes each under the UID of the active hub's object.
func TestStandby_ReceivesEveryObject(t *testing.T) {
	active := emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")).with(projectRef("default"), openProject("default")).
		with(secretRef("repo"), gitSecret).with(refOfKind(kind.Agents, "w1"), agentW1).
		with(refOfKind(kind.ConfigMaps, "argocd-tls-certs-cm"), standbyObject(kind.ConfigMaps, "argocd-tls-certs-cm", ``, `"data":{"git":"pem"}`)).
		with(secretRef("argocd-secret"), standbyObject(kind.Secrets, "argocd-secret", ``, `"data":{"admin.password":"eA=="}`)).
		with(refOfKind(kind.Agents, "hub-2"), standbyObject(kind.Agents, "hub-2", ``, `"spec":{"mode":"standby"}`))
	h := newHubs(t, active, emptyCluster(t, 100).with(projectRef("default"), openProject("default")))
	h.connect()
	h.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	for _, r := range []kind.Ref{ref("w1", "a"), ref("w1", "b"), projectRef("default"), secretRef("repo"), refOfKind(kind.Agents, "w1"), refOfKind(kind.ConfigMaps, "argocd-tls-certs-cm")} {
		original, got := active.objects[r], h.standbyHas(r)
		if got == nil {
			t.Errorf("%s %s is missing", r.Resource.Kind, r.Name)
			continue
		}
		env := &kind.Env{Side: kind.Hub, PrincipalUID: "principal-1"}
		if uid := kind.PublishedUID(got, env); uid != original.UID() {
			t.Errorf("%s is published as %s, want %s", r.Name, uid, original.UID())
		}
		for _, field := range []string{"spec", "data", "type"} {
			if canonical(t, original.Get(field)) != canonical(t, got.Get(field)) {
				t.Errorf("%s of %s: %s, want %s", field, r.Name, got.Get(field), original.Get(field))
			}
		}
	}
	if status := string(h.standbyHas(refOfKind(kind.Agents, "w1")).Get("status")); status != `{"clusterUID":"spoke","store":{"revision":5,"uid":"spoke"}}` {
		t.Errorf("status of the Agent: %s", status)
	}
	for _, r := range []kind.Ref{secretRef("argocd-secret"), refOfKind(kind.Agents, "hub-2")} {
		if h.standbyHas(r) != nil {
			t.Errorf("%s was copied", r.Name)
		}
	}
	h.wrote = nil
	h.beat()
	if len(h.wrote) > 0 {
		t.Errorf("%d writes without a change", len(h.wrote))
	}
}

// The revision up to which everything was received grows only when all scopes are equal.
func TestStandby_KnowsWhatItHasReceived(t *testing.T) {
	h := newHubs(t, emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")), emptyCluster(t, 100))
	if got := h.sides[kind.Spoke].Received().Revision; got != 0 {
		t.Fatalf("before a session: %d", got)
	}
	h.connect()
	h.beat()
	first := h.sides[kind.Spoke].Received().Revision
	if first != uint64(h.stores[kind.Hub].rev) {
		t.Fatalf("received %d of %d", first, h.stores[kind.Hub].rev)
	}
	h.user(kind.Spoke, ref("w1", "b"), app("w1", "b", "default", "own")) // an Application of the standby
	h.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	for _, r := range kind.Resources(kind.StandbyKinds()) {
		h.step(kind.Hub, Bookmark{Resource: r, Revision: uint64(h.stores[kind.Hub].rev)})
	}
	h.beat()
	if got := h.sides[kind.Spoke].Received().Revision; got != first {
		t.Errorf("received %d although an item is refused, want %d", got, first)
	}
	if !h.rejected("an object of its own") {
		t.Error("the refusal is not reported")
	}
	if h.standbyHas(ref("w1", "b")).Get("spec", "source", "targetRevision") == nil || h.standbyHas(ref("w1", "b")).Annotation(kind.StandbyAnnotation) != "" {
		t.Error("an Application of the standby was changed")
	}
	h.removeOnSpoke(ref("w1", "b"))
	h.settle()
	h.beat()
	if got := h.sides[kind.Spoke].Received().Revision; got <= first {
		t.Errorf("received %d after the refused item was accepted", got)
	}
	h.disconnect()
	if got := h.sides[kind.Spoke].Received().Revision; got != 0 {
		t.Errorf("without a session: %d", got)
	}
}

// The time since everything was proven equal grows while an item is refused and while the hubs are not connected.
func TestStandby_KnowsWhenItWasLastEqual(t *testing.T) {
	h := newHubs(t, emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")), emptyCluster(t, 100))
	all := len(h.sides[kind.Spoke].syncs[""].scopes)
	expect := func(what string, equalFor engine.Time, open int) {
		t.Helper()
		got := h.sides[kind.Spoke].Receiving()
		if got.OpenScopes != open || (equalFor < 0) != (got.EqualAt == 0) || equalFor >= 0 && h.now-got.EqualAt > equalFor {
			t.Errorf("%s: equal %d ms ago, %d open scopes", what, h.now-got.EqualAt, got.OpenScopes)
		}
	}
	expect("before a session", -1, all)
	h.connect()
	h.beat()
	expect("in sync", 70*engine.Second, 0)
	before := h.sides[kind.Spoke].Receiving().EqualAt
	h.beat()
	if h.sides[kind.Spoke].Receiving().EqualAt <= before {
		t.Error("it was not proven again")
	}
	h.user(kind.Spoke, ref("w1", "b"), app("w1", "b", "default", "own")) // an Application of the standby
	h.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	before = h.sides[kind.Spoke].Receiving().EqualAt
	h.beat()
	if got := h.sides[kind.Spoke].Receiving(); got.EqualAt != before || got.OpenScopes != 1 {
		t.Errorf("with a refused item: %+v, before %d", got, before)
	}
	h.removeOnSpoke(ref("w1", "b"))
	h.settle()
	h.beat()
	expect("after the refused item was accepted", 70*engine.Second, 0)
	before = h.sides[kind.Spoke].Receiving().EqualAt
	h.disconnect()
	h.waitSeconds(300)
	if got := h.sides[kind.Spoke].Receiving(); got.EqualAt != before || got.OpenScopes != all {
		t.Errorf("without a session: %+v, before %d", got, before)
	}
	if got := h.sides[kind.Hub].Receiving(); got != (Receiving{}) {
		t.Errorf("the active hub: %+v", got)
	}
}

// A hub that was active has the originals. They are updated in place, and what was deleted since is deleted there if the
// new active hub is known to have had it. What it never received stays.
func TestStandby_FormerActiveHubCatchesUp(t *testing.T) {
	old := emptyCluster(t, 0).with(ref("w1", "same"), app("w1", "same", "default", "v1")).with(ref("w1", "changed"), app("w1", "changed", "default", "v1")).
		with(ref("w1", "deleted"), string(set(t, []byte(app("w1", "deleted", "default", "v1")), quoted(resourcesFinalizer), "metadata", "finalizers"))).with(ref("w1", "kept"), app("w1", "kept", "default", "v1")).with(refOfKind(kind.Agents, "w1"), agentW1)
	next := emptyCluster(t, 100)
	h := newHubs(t, old, next)
	h.connect()
	h.beat()
	received := h.sides[kind.Spoke].Received().Revision
	if received == 0 {
		t.Fatal("nothing was received")
	}
	h.disconnect()
	old.with(ref("w1", "late"), app("w1", "late", "default", "v1")) // never received
	uid := old.objects[ref("w1", "same")].UID()

	back := newHubs(t, next, old, func(a, s *Config) {
		a.ClusterUID, s.ClusterUID = "s", "h"
		a.Generation, a.Predecessor = 2, engine.Store{UID: "h", Revision: received}
	})
	back.hubStore = "s"
	back.removeOnHub(ref("w1", "deleted"), true)
	back.user(kind.Hub, ref("w1", "changed"), strings.Replace(string(next.objects[ref("w1", "changed")].Raw()), `"v1"`, `"v2"`, 1))
	back.connect()
	back.beat()
	if o := back.standbyHas(ref("w1", "changed")); !strings.Contains(string(o.Get("spec")), `"v2"`) {
		t.Errorf("the change did not arrive: %s", o.Raw())
	}
	if o := back.standbyHas(ref("w1", "same")); o == nil || o.UID() != uid || kind.SourceOf(o, &kind.Env{PrincipalUID: "principal-1"}) != uid {
		t.Error("an original was replaced")
	}
	if back.standbyHas(ref("w1", "deleted")) != nil {
		t.Error("a deleted Application stays on the former hub")
	}
	if back.standbyHas(ref("w1", "late")) == nil {
		t.Error("an Application is lost that the active hub has never received")
	}
	if o := back.standbyHas(refOfKind(kind.Agents, "w1")); strings.Contains(string(o.Get("status")), "connected") {
		t.Errorf("the Agent still shows a connection: %s", o.Get("status"))
	}
}

// The former active hub was restored from an older backup. What users have created there since can have revisions that the
// active hub has received of other objects. It stays, whatever the revision is by now.
func TestStandby_FormerActiveHubWasRestored(t *testing.T) {
	const received = 1000
	agent := func(record string, mark int) string {
		return standbyObject(kind.Agents, "hub-2", ``, fmt.Sprintf(`"spec":{"mode":"standby"},"status":{"historyMark":%d,"historyRecord":%q}`, mark, record))
	}
	mark := engine.HistoryMark{Record: "agent-uid-7", Number: 4}
	for name, tc := range map[string]struct {
		agent    string // as it is on the former hub; empty if there is none
		mark     engine.HistoryMark
		sessions []uint64 // revision of the former hub at the start of each
		deleted  bool
	}{
		"not restored":      {agent("agent-uid-7", 4), mark, []uint64{1000}, true},
		"a later mark":      {agent("agent-uid-7", 5), mark, []uint64{1000}, true},
		"no mark is known":  {"", engine.HistoryMark{Record: "agent-uid-7"}, []uint64{1000}, true},
		"an older revision": {agent("agent-uid-7", 4), mark, []uint64{999}, false},
		"an older revision in the session before": {agent("agent-uid-7", 4), mark, []uint64{999, 2000}, false},
		"a lower mark":             {agent("agent-uid-7", 3), mark, []uint64{2000}, false},
		"a mark of another record": {agent("agent-uid-9", 9), mark, []uint64{2000}, false},
		"no Agent with a mark":     {"", mark, []uint64{2000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			former, active := emptyCluster(t, 0), emptyCluster(t, 100)
			for _, name := range []string{"a", "b", "c"} {
				former.with(ref("w1", name), app("w1", name, "default", "v1"))
				active.with(ref("w1", name), string(former.objects[ref("w1", name)].Raw()))
				active.with(ref("w1", name), string(set(t, active.objects[ref("w1", name)].Raw(),
					fmt.Sprintf(`{"argocd.argoproj.io/principal-uid":"principal-1","argocd.argoproj.io/source-uid":%q}`, former.objects[ref("w1", name)].UID()), "metadata", "annotations")))
			}
			former.with(ref("w1", "fresh"), app("w1", "fresh", "default", "v1"))
			if tc.agent != "" {
				former.with(refOfKind(kind.Agents, "hub-2"), tc.agent)
			}
			h := newHubs(t, active, former, func(a, s *Config) {
				a.ClusterUID, s.ClusterUID = "s", "h"
				a.Generation, a.Predecessor = 2, engine.Store{UID: "h", Revision: received, Mark: tc.mark}
			})
			h.hubStore = "s"
			for _, revision := range tc.sessions {
				h.revision = revision
				h.connect()
				h.beat()
				h.disconnect()
			}
			if deleted := h.standbyHas(ref("w1", "fresh")) == nil; deleted != tc.deleted {
				t.Errorf("the Application that the active hub lacks is deleted: %v", deleted)
			}
		})
	}
}

// The former active hub is back, and the active hub does not know up to where it has received its objects. It deletes
// nothing.
func TestStandby_KeepsWhatMayBeUnknownToTheActiveHub(t *testing.T) {
	former := emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1"))
	h := newHubs(t, emptyCluster(t, 100).with(ref("w1", "b"), app("w1", "b", "default", "v1")), former)
	h.connect()
	h.beat()
	if h.standbyHas(ref("w1", "a")) == nil {
		t.Error("an Application of the former hub was deleted")
	}
	for _, w := range h.wrote {
		if w.Verb == Delete {
			t.Errorf("deletes %s", w.Ref.Name)
		}
	}
}

// A deletion in progress continues after a promotion: the standby has it too. The end of it removes the copy with its
// finalizers, which nothing on a standby would remove.
func TestStandby_FollowsDeletions(t *testing.T) {
	body := string(set(t, []byte(app("w1", "a", "default", "v1")), quoted(resourcesFinalizer), "metadata", "finalizers"))
	active := emptyCluster(t, 0).with(ref("w1", "a"), body).with(ref("w1", "b"), body).with(ref("w1", "c"), body)
	for _, name := range []string{"b", "c"} {
		active.with(ref("w1", name), string(set(t, []byte(body), fmt.Sprintf("%q", name), "metadata", "name")))
	}
	h := newHubs(t, active, emptyCluster(t, 100))
	h.connect()
	terminating := set(t, active.objects[ref("w1", "a")].Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")
	h.user(kind.Hub, ref("w1", "a"), string(terminating))
	if o := h.standbyHas(ref("w1", "a")); o == nil || !o.IsDeleting() || len(o.Finalizers()) != 1 {
		t.Fatalf("the deletion in progress: %v", o)
	}
	h.wrote = nil
	h.beat()
	if len(h.wrote) > 0 {
		t.Errorf("%d writes without a change", len(h.wrote))
	}
	h.removeOnHub(ref("w1", "a"), true)
	h.settle()
	if o := h.standbyHas(ref("w1", "a")); o != nil {
		t.Errorf("the copy stays: %s", o.Raw())
	}
	// A user deletes a copy on the standby. It comes back.
	gone := set(t, h.standbyHas(ref("w1", "b")).Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")
	h.user(kind.Spoke, ref("w1", "b"), string(gone))
	h.beat()
	if o := h.standbyHas(ref("w1", "b")); o == nil || o.IsDeleting() {
		t.Errorf("the deleted copy did not come back: %v", o)
	}
}

// A command without an ID could get another one on the promoted hub, and run twice.
func TestStandby_CommandsHaveTheirID(t *testing.T) {
	named := `{"info":[{"name":"argocd-agent/command","value":"c-1"}],"sync":{}}`
	active := emptyCluster(t, 0).with(ref("w1", "a"), withOperation(t, app("w1", "a", "default", "v1"), `{"sync":{}}`)).
		with(ref("w1", "b"), withOperation(t, app("w1", "b", "default", "v1"), named))
	h := newHubs(t, active, emptyCluster(t, 100))
	h.connect()
	if got := h.standbyHas(ref("w1", "a")).Get("operation"); got != nil {
		t.Errorf("an operation without an ID was copied: %s", got)
	}
	if got := string(h.standbyHas(ref("w1", "b")).Get("operation")); got != named {
		t.Errorf("operation: %s", got)
	}
}

// Replicas of autonomous agents keep the ownership of their agent, and stay recognizable in both directions.
func TestStandby_KeepsOwnershipOfAgents(t *testing.T) {
	body := set(t, []byte(app("auto", "x", "default", "v1")), `{"argocd.argoproj.io/principal-uid":"principal-1","argocd.argoproj.io/source-uid":"on-the-spoke","argocd-agent.argoproj-labs.io/agent-name":"auto"}`, "metadata", "annotations")
	active, next := emptyCluster(t, 0).with(ref("auto", "x"), string(body)), emptyCluster(t, 100)
	h := newHubs(t, active, next)
	h.connect()
	got := h.standbyHas(ref("auto", "x"))
	if got.Annotation(kind.SourceUID) != "on-the-spoke" || got.Annotation(kind.AgentNameAnnotation) != "auto" || kind.IsRestored(got, &kind.Env{Side: kind.Hub, PrincipalUID: "principal-1"}) {
		t.Errorf("annotations: %v", got.Annotations())
	}
	h.disconnect()
	back := newHubs(t, next, active, func(a, s *Config) { a.Generation, a.ClusterUID, s.ClusterUID = 2, "s", "h" })
	back.connect()
	back.beat()
	if back.rejected("") || back.standbyHas(ref("auto", "x")).Annotation(kind.StandbyAnnotation) == "" {
		t.Errorf("the replica on the former hub was not recognized: %v", back.events)
	}
}

// A store that was restored from a backup must not take objects from the standby.
func TestStandby_HoldsDeletionsOfARestoredHub(t *testing.T) {
	active := emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1"))
	next := emptyCluster(t, 100)
	h := newHubs(t, active, next)
	h.connect()
	h.disconnect()
	behind := emptyCluster(t, 50)
	behind.rev = 50
	restored := newHubs(t, behind, next, func(_, s *Config) { s.KnownStore = engine.Store{UID: "h", Revision: 10_000} })
	restored.connect()
	restored.beat()
	if restored.standbyHas(ref("w1", "a")) == nil {
		t.Error("a restored hub deleted an object of the standby")
	}
	if restored.sides[kind.Spoke].Received().Revision != 0 {
		t.Error("the restored store counts as received")
	}
	restored.confirmAll()
	restored.beat()
	restored.confirmAll() // it is the last one
	restored.beat()
	if restored.standbyHas(ref("w1", "a")) != nil {
		t.Error("the confirmation had no effect")
	}
}

// An active hub cannot make a standby write what is not to be copied.
func TestStandby_RefusesHostileContent(t *testing.T) {
	secret := kind.StandbyKinds()[1]
	w := &kind.Env{Side: kind.Spoke, Agent: kind.Agent{Mode: kind.Standby}, HubArgoNamespace: "kube-system", SpokeArgoNamespace: "argocd", PrincipalUID: "principal-1"}
	labels := `"labels":{"argocd.argoproj.io/secret-type":"repository"}`
	for _, tc := range []struct{ namespace, name, content, want string }{
		{"argocd", "repo", `{"metadata":{` + labels + `},"uid":"u-1"}`, ""},
		{"kube-system", "repo", `{"metadata":{` + labels + `},"uid":"u-1"}`, "not copied"},
		{"argocd", "argocd-secret", `{"metadata":{"labels":{}},"uid":"u-1"}`, "not a Secret that a standby receives"},
		{"argocd", "repo", `{"metadata":{` + labels + `},"kind":"Pod","uid":"u-1"}`, "must not set"},
		{"argocd", "repo", `{"metadata":{` + labels + `}}`, "without the UID"},
		{"argocd", "../x", `{"metadata":{` + labels + `},"uid":"u-1"}`, "not a name"},
	} {
		key := engine.Key{Namespace: tc.namespace, Name: tc.name}
		_, err := secret.Merge(nil, key, []byte(tc.content), nil, kind.Ownership{Owned: true}, w)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s %s: %v, want %q", key, tc.content, err, tc.want)
		}
	}
}

// Agents share no scope with a standby, whatever their mode is changed to.
func TestStandby_SharesNoKindWithAgents(t *testing.T) {
	for _, k := range kind.StandbyKinds() {
		if tr := k.Traits(); tr.In(kind.Managed) || tr.In(kind.Autonomous) || !tr.In(kind.Standby) {
			t.Errorf("%s is for agents", k.Scope())
		}
	}
	for _, k := range kind.All() {
		if k.Traits().In(kind.Standby) {
			t.Errorf("%s is for a standby", k.Scope())
		}
	}
}

// The store is older than the one that the standby knows, and has the same objects. What it had since is unknown.
func TestStandby_ARestoredStoreIsNotReceived(t *testing.T) {
	active, next := emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")), emptyCluster(t, 100)
	h := newHubs(t, active, next)
	h.connect()
	h.disconnect()
	restored := newHubs(t, active, next, func(_, s *Config) { s.KnownStore = engine.Store{UID: "h", Revision: 10_000} })
	restored.connect()
	restored.beat()
	if got := restored.sides[kind.Spoke].Received(); got != (engine.Store{}) {
		t.Errorf("received %+v", got)
	}
	restored.confirmAll()
	restored.beat()
	if got := restored.sides[kind.Spoke].Received(); got.UID != "h" || got.Revision == 0 {
		t.Errorf("after the confirmation: %+v", got)
	}
}

// The active hub has received the objects of another cluster than this one.
func TestStandby_PredecessorOfAnotherCluster(t *testing.T) {
	former := emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")).with(ref("w1", "c"), app("w1", "c", "default", "v1"))
	h := newHubs(t, emptyCluster(t, 100).with(ref("w1", "b"), app("w1", "b", "default", "v1")), former, func(a, _ *Config) {
		a.Generation, a.Predecessor = 2, engine.Store{UID: "another", Revision: 1000}
	})
	h.revision = 1000
	h.connect()
	h.beat()
	h.confirmAll()
	if h.standbyHas(ref("w1", "a")) == nil || h.standbyHas(ref("w1", "c")) == nil {
		t.Error("an Application is lost that the active hub has never received")
	}
}

// Copies from a hub of another group are neither written nor deleted.
func TestStandby_LeavesCopiesOfAnotherGroup(t *testing.T) {
	copied := func(name string) string {
		value := `{"argocd-agent.argoproj-labs.io/standby":"{\"hub\":\"principal-2\",\"uid\":\"u-1\"}"}`
		return string(set(t, []byte(app("w1", name, "default", "theirs")), value, "metadata", "annotations"))
	}
	standby := emptyCluster(t, 100).with(ref("w1", "a"), copied("a")).with(ref("w1", "b"), copied("b")).with(ref("w1", "c"), copied("c"))
	h := newHubs(t, emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")), standby)
	h.connect()
	h.beat()
	h.confirmAll()
	h.beat()
	if len(h.wrote) > 0 || !h.rejected("another group") {
		t.Errorf("wrote %v", h.wrote)
	}
}

// What a standby decides about an object holds also if the object has changed since the engine decided.
func TestStandby_DecidesWithTheCurrentObject(t *testing.T) {
	h := newHubs(t, emptyCluster(t, 0).with(ref("w1", "a"), app("w1", "a", "default", "v1")), emptyCluster(t, 100))
	h.connect()
	l := h.sides[kind.Spoke].syncs[""]
	s := l.scope("standby-applications")
	local := h.standbyHas(ref("w1", "a"))
	recorded := kind.ReadOwnership(local, &l.env).SourceRevision
	content, _, _ := h.sides[kind.Hub].syncs["w1"].Content(s.cfg.Name, engine.Key{Namespace: "w1", Name: "a"})
	apply := engine.Apply{Scope: s.cfg.Name, Key: engine.Key{Namespace: "w1", Name: "a"}, Content: content, View: recorded - 1}
	if _, fail := l.claimOnStandby(s, apply, local); fail == nil || fail.Message != engine.StaleView {
		t.Errorf("a view of %d for an object of %d: %v", apply.View, recorded, fail)
	}
	apply.View = recorded
	if _, fail := l.claimOnStandby(s, apply, local); fail != nil {
		t.Errorf("a current view: %v", fail)
	}
	own := h.stores[kind.Spoke].put(ref("w1", "own"), []byte(app("w1", "own", "default", "v1")), true)
	if d := l.removeOnStandby(s, own); !d.gone || d.object != nil {
		t.Errorf("an object of the standby: %+v", d)
	}
	if d := l.removeOnStandby(s, local); d.verb != Delete || d.object == nil {
		t.Errorf("a copy: %+v", d)
	}
}
