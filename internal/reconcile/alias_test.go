package reconcile

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

const (
	prunedField = "spec.syncPolicy.automated.enabled"
	oldCRD      = "uid/1"
	newCRD      = "uid/2"
)

// pruningPair is a pair in which the API server of one side does not know one field of
// Applications, as with an older CRD.
type pruningPair struct {
	*pair
	side   kind.Side // the replica's
	prunes bool
	writes map[string]int // of the replica's Application, by why
}

func newPruningPair(t *testing.T, mode kind.Mode) *pruningPair {
	t.Helper()
	p := &pruningPair{pair: newPair(t, mode), side: kind.Spoke, prunes: true, writes: map[string]int{}}
	if mode == kind.Autonomous {
		p.side = kind.Hub
	}
	p.hook = func(side kind.Side, w Write) bool {
		if side != p.side || w.Ref.Resource != kind.Applications {
			return false
		}
		p.writes[w.Reason]++
		if !p.prunes || w.Verb == Delete {
			return false
		}
		body, err := rawjson.Remove(w.Object.Raw(), strings.Split(prunedField, ".")...)
		if err != nil {
			t.Fatal(err)
		}
		if local := p.stores[side].objects[w.Ref]; w.Verb == Update && bytes.Equal(local.Raw(), body) {
			p.step(side, WriteResult{ID: w.ID, Object: local}) // the API server stores nothing
			return true
		}
		p.step(side, WriteResult{ID: w.ID, Object: p.stores[side].put(w.Ref, body, w.Verb == Create)})
		return true
	}
	for _, r := range []kind.Resource{kind.Applications, kind.AppProjects} {
		p.step(p.side, Schema{Resource: r, Version: oldCRD})
	}
	p.connect()
	if mode == kind.Managed {
		p.user(kind.Hub, ref("w1", "a"), withEnabled(t, app("w1", "a", "default", "v1")))
	} else {
		p.user(kind.Spoke, ref("argocd", "a"), withEnabled(t, app("argocd", "a", "default", "v1")))
	}
	return p
}

func withEnabled(t *testing.T, body string) string {
	t.Helper()
	b, err := rawjson.Set([]byte(body), []byte(`{"automated":{"enabled":false,"prune":true}}`), "spec", "syncPolicy")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// replica is the Application that lacks the field.
func (p *pruningPair) replica() *kind.Object {
	if p.side == kind.Hub {
		return p.stores[kind.Hub].objects[ref("w1", "a")]
	}
	return p.stores[kind.Spoke].objects[ref("argocd", "a")]
}

// shown is the message of the condition on the hub's Application.
func (p *pruningPair) shown() string {
	list, _ := rawjson.Elements(p.stores[kind.Hub].objects[ref("w1", "a")].Get("status", "conditions"))
	for _, c := range list {
		if rawjson.Text(c, "type") == kind.ConditionDropped {
			return rawjson.Text(c, "message")
		}
	}
	return ""
}

func (p *pruningPair) upgradeCRD() {
	p.prunes = false
	p.step(p.side, Schema{Resource: kind.Applications, Version: newCRD})
}

func (p *pruningPair) wait(seconds int) {
	for range seconds {
		p.now += engine.Second
		for side := range p.sides {
			p.step(kind.Side(side), Tick{})
		}
		p.settle()
	}
}

func (p *pruningPair) disconnect() {
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: p.session}})
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: p.session}})
	p.wires = [2][]engine.Message{}
	p.revision = uint64(max(p.stores[kind.Hub].rev, p.stores[kind.Spoke].rev)) // of the next session
}

// restart starts one side again, maybe in another release or after another CRD.
func (p *pruningPair) restart(side kind.Side, version, crd string) {
	p.disconnect()
	cfg := p.sides[side].cfg
	cfg.Version = version
	p.sides[side] = New(cfg)
	if side == kind.Hub {
		mode := p.sides[kind.Spoke].cfg.Mode
		p.step(side, Register{Agent: kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	}
	for _, r := range Resources() {
		in := List{Resource: r, Revision: uint64(p.stores[side].rev)}
		for _, ref := range sortedRefs(p.stores[side].objects) {
			if ref.Resource == r {
				in.Objects = append(in.Objects, p.stores[side].objects[ref])
			}
		}
		p.step(side, in)
	}
	if crd != "" {
		p.step(side, Schema{Resource: kind.Applications, Version: crd})
	}
	p.connect()
}

func (p *pruningPair) arrives(within int) {
	p.t.Helper()
	p.wait(within)
	got := string(p.replica().Get("spec", "syncPolicy", "automated", "enabled"))
	if got != "false" || p.shown() != "" {
		p.t.Errorf("after %d seconds the field is %q and the hub shows %q", within, got, p.shown())
	}
}

func (p *pruningPair) stays(seconds int) {
	p.t.Helper()
	p.wait(seconds)
	if got := p.replica().Get("spec", "syncPolicy", "automated", "enabled"); got != nil {
		p.t.Fatalf("the field is stored: %s", got)
	}
	if !strings.Contains(p.shown(), prunedField) {
		p.t.Errorf("the hub shows %q", p.shown())
	}
}

func eachMode(t *testing.T, f func(*pruningPair)) {
	t.Helper()
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		t.Run(string(mode), func(t *testing.T) { f(newPruningPair(t, mode)) })
	}
}

func TestPrunedField_ArrivesAfterCRDUpgrade(t *testing.T) {
	eachMode(t, func(p *pruningPair) {
		p.stays(0)
		p.stays(3600)
		p.upgradeCRD()
		p.arrives(20)
	})
}

func TestPrunedField_IsRetried(t *testing.T) {
	for _, c := range []struct {
		name   string
		within int
		event  func(*pruningPair)
	}{
		{"after a restart with another CRD", 20, func(p *pruningPair) { p.restart(p.side, "", newCRD) }},
		{"after an upgrade of the replica's side", 20, func(p *pruningPair) { p.restart(p.side, "v2", oldCRD) }},
		{"after an upgrade of the owner's side", 20, func(p *pruningPair) { p.restart(1-p.side, "v2", "") }},
		{"where CRDs cannot be read", 3700, func(p *pruningPair) { p.restart(p.side, "", oldCRD) }},
		{"without any sign", 3700, func(*pruningPair) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachMode(t, func(p *pruningPair) {
				p.stays(4 * 3600)
				p.prunes = false
				c.event(p)
				p.arrives(c.within)
			})
		})
	}
}

func TestPrunedField_ConditionSurvivesSessionsAndProcesses(t *testing.T) {
	for _, c := range []struct {
		name  string
		event func(*pruningPair)
	}{
		{"new session", func(p *pruningPair) { p.disconnect(); p.connect() }},
		{"restart of the spoke", func(p *pruningPair) { p.restart(kind.Spoke, "", "") }},
		{"restart of the hub", func(p *pruningPair) { p.restart(kind.Hub, "", "") }},
		{"upgrade of the spoke", func(p *pruningPair) { p.restart(kind.Spoke, "v2", "") }},
		{"upgrade of the hub", func(p *pruningPair) { p.restart(kind.Hub, "v2", "") }},
		{"another CRD that lacks it too", func(p *pruningPair) { p.step(p.side, Schema{Resource: kind.Applications, Version: newCRD}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachMode(t, func(p *pruningPair) {
				c.event(p)
				p.stays(0)
				p.stays(300)
			})
		})
	}
}

func TestPrunedField_ConditionEndsWithField(t *testing.T) {
	eachMode(t, func(p *pruningPair) {
		if p.side == kind.Spoke {
			p.user(kind.Hub, ref("w1", "a"), string(must(rawjson.Remove(p.stores[kind.Hub].objects[ref("w1", "a")].Raw(), "spec", "syncPolicy"))))
		} else {
			p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
		}
		p.wait(int(requeueDelay / engine.Second)) // between two writes of conditions
		if alias := p.replica().Annotation(kind.AliasAnnotation); p.shown() != "" || alias != "" {
			p.t.Errorf("the hub shows %q, the replica is marked with %q", p.shown(), alias)
		}
	})
}

func TestAlias_IsRecordedOnlyOnItsObject(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "default", "v1"))
	n := p.sides[kind.Spoke]
	l := n.syncs[""]
	stored := func(name string) engine.Version {
		return l.storedVersion(l.scope(kind.ApplicationScope), p.stores[kind.Spoke].objects[ref("argocd", name)])
	}
	for _, c := range []struct {
		name, object string
		stored       engine.Version
		written      bool
	}{
		{"as it is", "a", stored("a"), true},
		{"changed since", "a", engine.VersionOf([]byte("other")), false},
		{"not ours", "local", stored("local"), false},
		{"gone", "gone", stored("a"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.out = nil
			clear(n.objectQueues)
			l.recordAlias(engine.RecordAlias{Scope: kind.ApplicationScope, Key: engine.Key{Name: c.object},
				Alias: engine.Alias{Written: engine.VersionOf([]byte("v")), Stored: c.stored}})
			if got := len(n.out) > 0; got != c.written {
				t.Errorf("written: %t", got)
			}
		})
	}
}

// The answer to the write that stored the field may get lost with its session.
func TestPrunedField_ConditionEndsAfterSession(t *testing.T) {
	eachMode(t, func(p *pruningPair) {
		p.upgradeCRD()
		for range 20 {
			if p.replica().Get("spec", "syncPolicy", "automated", "enabled") != nil {
				break
			}
			p.wires[1-p.side] = nil
			p.now += engine.Second
			p.step(p.side, Tick{})
			for len(p.wires[1-p.side]) > 0 { // the owner's answer comes through, and nothing that follows it
				m := p.wires[1-p.side][0]
				p.wires[1-p.side] = p.wires[1-p.side][1:]
				p.receive(1-p.side, m)
			}
			for len(p.wires[p.side]) > 0 {
				m := p.wires[p.side][0]
				p.wires[p.side] = p.wires[p.side][1:]
				p.receive(p.side, m)
			}
		}
		p.disconnect()
		p.connect()
		p.arrives(10)
	})
}

func (p *pruningPair) receive(side kind.Side, m engine.Message) {
	agent := "w1"
	if side == kind.Spoke {
		agent = ""
	}
	p.step(side, FromPeer{Agent: agent, Input: engine.Received{Session: p.session, Message: m}})
}

// A check writes once, and stores nothing if nothing has changed.
func TestPrunedField_ChecksAreFewAndStoreNothing(t *testing.T) {
	eachMode(t, func(p *pruningPair) {
		p.wait(600)
		before, revision := p.writes["apply application"], p.replica().ResourceVersion()
		p.stays(12 * 3600)
		if n := p.writes["apply application"] - before; n < 12 || n > 26 {
			p.t.Errorf("%d writes in twelve hours", n)
		}
		if got := p.replica().ResourceVersion(); got != revision {
			p.t.Errorf("the Application went from revision %s to %s", revision, got)
		}
		if n := p.writes["record alias"]; n != 1 {
			p.t.Errorf("the alias was recorded %d times", n)
		}
	})
}

// An alias that an earlier release has recorded says nothing of what it rests on.
func TestAlias_OfEarlierReleaseIsCheckedOnce(t *testing.T) {
	p := newPruningPair(t, kind.Managed)
	o := p.replica()
	alias := kind.ReadOwnership(o, &p.sides[kind.Spoke].syncs[""].env).Alias
	old, err := rawjson.Set(o.Raw(), rawjson.Quote(alias.Written.String()+"="+alias.Stored.String()), "metadata", "annotations", kind.AliasAnnotation)
	if err != nil {
		t.Fatal(err)
	}
	p.disconnect()
	p.stores[kind.Spoke].put(ref("argocd", "a"), old, false)
	before := p.writes["apply application"]
	p.restart(kind.Spoke, "", oldCRD)
	p.stays(20)
	if n := p.writes["apply application"] - before; n != 1 {
		t.Errorf("%d writes", n)
	}
}

// Defaults that the API server adds need no condition, and no check by time.
func TestAlias_AddedDefaultsAreNotShown(t *testing.T) {
	p := newPair(t, kind.Managed)
	writes := 0
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Ref.Resource != kind.Applications {
			return false
		}
		writes++
		body := must(rawjson.Set(w.Object.Raw(), []byte("10"), "spec", "revisionHistoryLimit"))
		p.step(side, WriteResult{ID: w.ID, Object: p.stores[side].put(w.Ref, body, w.Verb == Create)})
		return true
	}
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	before := writes
	p.waitSeconds(6 * 3600)
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if got := hub.Get("status", "conditions"); got != nil || writes != before {
		t.Errorf("conditions %s, %d writes in six hours", got, writes-before)
	}
}

// A controller that changes a field back is named by what it changes.
func TestContestedField_IsNamedOnHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	fights := true
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke || w.Ref.Resource != kind.Applications || w.Reason != "apply application" || !fights {
			return false
		}
		o := p.stores[side].put(w.Ref, w.Object.Raw(), w.Verb == Create)
		p.step(side, WriteResult{ID: w.ID, Object: o})
		body := must(rawjson.Set(o.Raw(), rawjson.Quote("mine"), "spec", "source", "targetRevision"))
		p.step(side, Observed{Resource: kind.Applications, Object: p.stores[side].put(w.Ref, body, false)})
		return true
	}
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.waitSeconds(120)
	shown := func() string {
		return string(p.stores[kind.Hub].objects[ref("w1", "a")].Get("status", "conditions"))
	}
	if !strings.Contains(shown(), "spec.source.targetRevision") {
		t.Fatalf("the hub shows %s", shown())
	}
	if alias := kind.ReadOwnership(p.stores[kind.Spoke].objects[ref("argocd", "a")], &p.sides[kind.Spoke].syncs[""].env).Alias; alias.Release != "" || alias.Schema != "" {
		t.Errorf("another process may rely on %+v", alias)
	}
	fights = false
	p.waitSeconds(700)
	spec := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "source", "targetRevision"))
	if shown() != "" || spec != `"v1"` {
		t.Errorf("the hub shows %s, the spoke has %s", shown(), spec)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// An edit of the replica that also removes the recorded alias is corrected, and the condition stays.
func TestPrunedField_ConditionSurvivesEditOfReplica(t *testing.T) {
	eachMode(t, func(p *pruningPair) {
		edited := p.replica()
		body, err := rawjson.Remove(edited.Raw(), "metadata", "annotations", kind.AliasAnnotation)
		if err != nil {
			p.t.Fatal(err)
		}
		body = set(p.t, body, `"edited"`, "spec", "source", "targetRevision")
		p.user(p.side, refOf(kind.Applications, edited), string(body))
		p.wait(30)
		if got := string(p.replica().Get("spec", "source", "targetRevision")); got != `"v1"` {
			p.t.Errorf("the edit stays: %s", got)
		}
		if !strings.Contains(p.shown(), prunedField) {
			p.t.Errorf("the hub shows %q", p.shown())
		}
	})
}

// The CRD is upgraded while the Application is frozen, so that the alias on the object stays as it was. It counts again when the
// object is seen while a restored hub has the Application as before, which is after the session has begun.
func TestPrunedField_ArrivesAfterCRDUpgradeWhileFrozen(t *testing.T) {
	p := newPruningPair(t, kind.Managed)
	p.stays(0)
	p.edit(kind.Hub, ref("w1", "a"), toHub, "spec", "destination")
	p.wait(5)
	p.upgradeCRD()
	p.wait(20)
	p.disconnect()
	p.edit(kind.Hub, ref("w1", "a"), toW1, "spec", "destination")
	p.hubStore = "restored"
	p.connect()
	p.wait(20)
	p.edit(kind.Spoke, ref("argocd", "a"), `{"reconciledAt":"2026-01-01T00:00:00Z"}`, "status")
	p.wait(20)
	p.confirmAll()
	p.arrives(120)
}

func TestAlias_IsNotCheckedAgainBeforeSession(t *testing.T) {
	p := newPruningPair(t, kind.Managed)
	restart := func() {
		p.disconnect()
		for side := range p.sides {
			p.sides[side].cfg.Version = "1"
		}
		hook, revision := p.hook, p.revision
		p.pair = p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
		p.hook, p.revision = hook, max(revision, p.revision)
		for _, r := range []kind.Resource{kind.Applications, kind.AppProjects} {
			p.step(p.side, Schema{Resource: r, Version: oldCRD})
		}
		p.wait(20)
		p.connect()
		p.wait(30)
	}
	restart()
	clear(p.writes)
	restart()
	if n := p.writes["apply application"]; n != 0 {
		t.Errorf("%d writes", n)
	}
}
