package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Annotations of objects on a spoke of principal-1.
const (
	ours     = `"argocd.argoproj.io/source-uid":"s1","argocd.argoproj.io/principal-uid":"principal-1"`
	ofOther  = `"argocd.argoproj.io/source-uid":"s1","argocd.argoproj.io/principal-uid":"principal-2"`
	adopted  = ours + `,"argocd-agent.argoproj-labs.io/adopted":"true"`
	cascades = `"finalizers":["` + resourcesFinalizer + `"]`
	going    = `"deletionTimestamp":"2026-01-01T00:00:00Z"`
)

// spokeSync returns the link of a spoke that has met its hub.
func spokeSync(t *testing.T) (*pair, *agentSync) {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	return p, p.sides[kind.Spoke].syncs[""]
}

// spokeApp returns an Application a of a spoke.
func spokeApp(t *testing.T, annotations, meta string) *kind.Object {
	t.Helper()
	if meta != "" {
		meta = "," + meta
	}
	return object(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"argocd","uid":"local","resourceVersion":"7","annotations":{`+annotations+`}`+meta+`},
		"spec":{"destination":{"name":"in-cluster"},"project":"default"}}`)
}

// hubContent is what the hub sends of an Application, with annotations.
func hubContent(uid, annotations string) []byte {
	return []byte(`{"metadata":{"annotations":{` + annotations + `}},"spec":{"destination":{"name":"in-cluster"},"project":"default"},"uid":"` + uid + `"}`)
}

// outcome describes a decision.
func outcome(d decision) string {
	switch {
	case d.fail != nil:
		return "fail " + string(d.fail.Code)
	case d.gone:
		return "gone"
	case d.object == nil:
		return "nothing"
	case d.again:
		return d.verb.String() + ", again"
	}
	return d.verb.String()
}

func TestRemove_OnSpoke(t *testing.T) {
	_, l := spokeSync(t)
	secret := object(t, `{"metadata":{"name":"a","namespace":"argocd","annotations":{`+ours+`}}}`)
	for _, c := range []struct {
		name, scope string
		local       *kind.Object
		want        string
	}{
		{"no object", kind.ApplicationScope, nil, "gone"},
		{"not ours", kind.ApplicationScope, spokeApp(t, ``, ``), "gone"},
		{"of another principal", kind.ApplicationScope, spokeApp(t, ofOther, ``), "gone"},
		{"ours", kind.ApplicationScope, spokeApp(t, ours, ``), "delete"},
		{"ours, with workloads", kind.ApplicationScope, spokeApp(t, ours, cascades), "update, again"},
		{"ours, being deleted", kind.ApplicationScope, spokeApp(t, ours, going), "nothing"},
		{"adopted", kind.ApplicationScope, spokeApp(t, adopted, ``), "update"},
		{"adopted, being deleted", kind.ApplicationScope, spokeApp(t, adopted, going), "nothing"},
		{"a Secret that is no repository", kind.RepositoryScope, secret, "gone"},
	} {
		d := l.decideRemoval(l.scope(c.scope), c.local, "")
		if got := outcome(d); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if d.object != nil && c.name == "adopted" && kind.ReadOwnership(d.object, &l.env).Owned {
			t.Error("an adopted object keeps its ownership annotation")
		}
	}
	// An Application that a user deletes on the hub is deleted here, also an adopted one. Other kinds are released.
	if got := outcome(l.decideRemoval(l.scope(kind.ApplicationScope), spokeApp(t, adopted, ``), "s1")); got != "delete" {
		t.Errorf("adopted, deleted by a user: %s, want delete", got)
	}
	// A user created another Application of that name and deleted it. The local one was never written from it.
	if got := outcome(l.decideRemoval(l.scope(kind.ApplicationScope), spokeApp(t, adopted, ``), "s2")); got != "update" {
		t.Errorf("adopted, another one deleted by a user: %s, want update", got)
	}
	// What is remembered of it names the object that the user deleted, or any.
	for uid, want := range map[string]string{"": "s1", "s1": "s1", "s2": ""} {
		_, l := spokeSync(t)
		local := spokeApp(t, adopted, ``)
		l.noteRemoval(kind.ApplicationScope, engine.Key{Name: "a"}, local, uid, l.decideRemoval(l.scope(kind.ApplicationScope), local, uid))
		if got := l.peer.Removals(); len(got) != 1 || got[0].Source != want {
			t.Errorf("a user deleted %q: remembered %+v", uid, got)
		}
	}
	hooks := `"finalizers":["pre-delete-finalizer.argocd.argoproj.io"]`
	for uid, want := range map[string]string{"": "update, again", "s1": "delete", "s2": "update, again"} {
		if got := outcome(l.decideRemoval(l.scope(kind.ApplicationScope), spokeApp(t, ours, hooks), uid)); got != want {
			t.Errorf("with a delete hook, a user deleted %q: %s, want %s", uid, got, want)
		}
	}
	project := object(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"p","namespace":"argocd","annotations":{`+adopted+`}},"spec":{}}`)
	if got := outcome(l.decideRemoval(l.scope(kind.AppProjectScope), project, "s1")); got != "update" {
		t.Errorf("adopted project, deleted by a user: %s, want update", got)
	}
}

func TestCascade_Decisions(t *testing.T) {
	_, l := spokeSync(t)
	content := []byte(`{"deleting":true,"metadata":{"finalizers":["` + resourcesFinalizer + `"]},"uid":"s1"}`)
	for _, c := range []struct {
		name    string
		local   *kind.Object
		suspect bool
		want    string
	}{
		{"no object", nil, false, "gone"},
		{"not ours", spokeApp(t, ``, cascades), false, "gone"},
		{"not ours, but with that source", spokeApp(t, ofOther, cascades), false, "gone"},
		{"of another source", spokeApp(t, strings.Replace(ours, "s1", "s2", 1), cascades), false, "gone"},
		{"ours, without the finalizer", spokeApp(t, ours, ``), false, "update, again"},
		{"ours", spokeApp(t, ours, cascades), false, "delete"},
		{"ours, being deleted", spokeApp(t, ours, cascades+","+going), false, "nothing"},
		{"ours, of a hub whose store regressed", spokeApp(t, ours, cascades), true, "fail Held"},
	} {
		cascade := &cascade{sync: l, apply: engine.Apply{Content: content, StoreUntrusted: c.suspect}}
		if got := outcome(cascade.decide(c.local)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	// A webhook removes the finalizer from what is stored.
	local := spokeApp(t, ours, ``)
	webhook := &cascade{sync: l, apply: engine.Apply{Content: content}}
	webhook.wrote(local)
	if got := outcome(webhook.decide(local)); got != "fail Invalid" {
		t.Errorf("a finalizer that is not kept: %s", got)
	}

	hub := newPair(t, kind.Autonomous).sides[kind.Hub].syncs["w1"]
	if hub.cascades(hub.scope(kind.ApplicationScope), engine.Apply{Content: content}) {
		t.Error("an autonomous agent deletes with cascade on the hub")
	}
}

func TestDecideOwnership_OfExistingObject(t *testing.T) {
	v1, v2 := engine.VersionOf([]byte("v1")), engine.VersionOf([]byte("v2"))
	alias := `,"argocd-agent.argoproj-labs.io/alias":"` + v1.String() + `=` + v2.String() + `"`
	for _, c := range []struct {
		name          string
		local         string // annotations
		policy        Policy
		content       []byte
		suspect       bool
		want          string // what happens instead; empty: it becomes ours
		adopted, kept bool   // its ownership says so; its alias is kept
	}{
		{name: "not ours", content: hubContent("s1", ``), adopted: true},
		{name: "not ours, policy never", policy: Policy{AdoptNever: true}, content: hubContent("s1", ``), want: "fail NotAdopted"},
		{name: "not ours, Application says never", content: hubContent("s1", `"argocd.argoproj.io/adoption-policy":"never"`), want: "fail NotAdopted"},
		{name: "not ours, policy never, Application says always", policy: Policy{AdoptNever: true}, content: hubContent("s1", `"argocd.argoproj.io/adoption-policy":"always"`), want: "fail NotAdopted"},
		{name: "not ours, spoke's object says never", local: `"argocd.argoproj.io/adoption-policy":"never"`, content: hubContent("s1", `"argocd.argoproj.io/adoption-policy":"always"`), want: "fail NotAdopted"},
		{name: "of an earlier principal", local: ofOther, content: hubContent("s1", ``)},
		{name: "of an existing installation that records no principal", local: `"argocd.argoproj.io/source-uid":"s1"`, content: hubContent("s1", ``), adopted: true},
		{name: "ours", local: ours + alias, content: hubContent("s1", ``), kept: true},
		{name: "ours, same source, policy recreate", local: ours + alias, policy: Policy{Recreate: true}, content: hubContent("s1", ``), kept: true},
		{name: "ours, another source", local: ours + alias, content: hubContent("s2", ``), kept: true},
		{name: "ours, another source, policy recreate", local: ours, policy: Policy{Recreate: true}, content: hubContent("s2", ``), want: "delete, again"},
		{name: "ours, another source, Application says recreate", local: ours, content: hubContent("s2", `"argocd.argoproj.io/source-uid-mismatch-policy":"recreate"`), want: "delete, again"},
		{name: "ours, another source, policy recreate, suspect", local: ours, policy: Policy{Recreate: true}, content: hubContent("s2", ``), suspect: true, want: "fail Held"},
		{name: "adopted, another source, policy recreate", local: adopted, policy: Policy{Recreate: true}, content: hubContent("s2", ``), adopted: true},
	} {
		p, l := spokeSync(t)
		p.sides[kind.Spoke].cfg.Policy = c.policy
		ownership, instead := l.decideOwnership(l.scope(kind.ApplicationScope), engine.Apply{Content: c.content, Version: v1, StoreUntrusted: c.suspect}, spokeApp(t, c.local, ``))
		got := ""
		if instead != nil {
			got = outcome(*instead)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if instead == nil && (ownership.Adopted != c.adopted || !ownership.Owned || ownership.Foreign || ownership.Alias.Written.IsZero() == c.kept) {
			t.Errorf("%s: %+v", c.name, ownership)
		}
		if ownership, _ := l.decideOwnership(l.scope(kind.ApplicationScope), engine.Apply{Content: c.content, Version: v2}, spokeApp(t, c.local, ``)); !ownership.Alias.Written.IsZero() && c.want == "" {
			t.Errorf("%s: the alias of another version is kept", c.name)
		}
	}
}

func TestApply_SecretOfSameNameIsNotOverwritten(t *testing.T) {
	p, l := spokeSync(t)
	p.sides[kind.Spoke].cfg.Policy.AdoptNever = true
	s := l.scope(kind.RepositoryScope)
	content := []byte(`{"data":{},"metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"uid":"s1"}`)
	secret := object(t, `{"metadata":{"name":"r","namespace":"argocd"},"data":{"admin.password":"eA=="}}`)
	if got := outcome(l.merge(s, refOf(kind.Secrets, secret), engine.Apply{Key: engine.Key{Name: "r"}, Content: content}, secret)); got != "fail NameTaken" {
		t.Errorf("%s", got)
	}
}

func TestSourceRevision_AloneIsNotWritten(t *testing.T) {
	_, l := spokeSync(t)
	s, r := l.scope(kind.ApplicationScope), ref("argocd", "a")
	e := engine.Apply{Key: engine.Key{Name: "a"}, Content: hubContent("s1", ``), SourceRevision: 5}
	created := l.merge(s, r, e, nil)
	if created.object == nil || kind.ReadOwnership(created.object, &l.env).SourceRevision != 5 {
		t.Fatalf("created as %+v", created)
	}
	e.SourceRevision = 9
	if got := outcome(l.merge(s, r, e, created.object)); got != "nothing" {
		t.Errorf("an equal object is written because of its age: %s", got)
	}
}

// The Application is restored. Its earlier commands are not executed again.
func TestReceipt_IsRestoredWithItsApplication(t *testing.T) {
	for _, c := range []struct {
		name     string
		missed   deletedApplication
		record   bool
		resynced bool
	}{
		{"of the same source", deletedApplication{source: "s1", record: `{"ids":["c1"]}`}, true, true},
		{"of the same source, removed by us", deletedApplication{source: "s1", record: `{"ids":["c1"]}`, ours: true}, true, false},
		{"of another source", deletedApplication{source: "s2", record: `{"ids":["c1"]}`}, false, false},
	} {
		p, l := spokeSync(t)
		p.sides[kind.Spoke].cfg.Policy.ResyncRecreated = true
		p.sides[kind.Spoke].deleted[ref("argocd", "a")] = c.missed
		d := l.merge(l.scope(kind.ApplicationScope), ref("argocd", "a"), engine.Apply{Key: engine.Key{Name: "a"}, Content: hubContent("s1", ``)}, nil)
		if got := kind.ReadReceipt(d.object) != ""; got != c.record {
			t.Errorf("%s: record %v", c.name, got)
		}
		if got := d.object.Get("operation") != nil; got != c.resynced {
			t.Errorf("%s: synced %v", c.name, got)
		}
	}
}

// Another tool removed the receipt of a command. The process that executed the command still knows that it ran.
func TestExecute_CommandWithoutReceipt(t *testing.T) {
	for _, c := range []struct {
		name    string
		forget  func(l *agentSync)
		outcome string
	}{
		{"the Application is the same", func(*agentSync) {}, "nothing"},
		{"the Application was deleted and restored", func(l *agentSync) { l.forget(spokeApp(t, ours, ``)) }, "fail Invalid"},
	} {
		_, l := spokeSync(t)
		command := engine.Apply{Scope: kind.CommandScope, Key: engine.Key{Name: "a"}, Content: fmt.Appendf(nil, `{"operation":{"info":[{"name":%q,"value":"c1"}],"sync":{}},"uid":"s1"}`, kind.CommandInfo)}
		if got := outcome(l.execute(command, spokeApp(t, ours, ``))); got != "update" {
			t.Fatalf("%s: the first time: %s", c.name, got)
		}
		l.begun(command)
		c.forget(l)
		if got := outcome(l.execute(command, spokeApp(t, ours, ``))); got != c.outcome {
			t.Errorf("%s: %s, want %s", c.name, got, c.outcome)
		}
	}
}

func TestRemoveFinalizers_OnlyFromTerminatingReplica(t *testing.T) {
	l := newPair(t, kind.Autonomous).sides[kind.Hub].syncs["w1"]
	copied := ours + `,"argocd-agent.argoproj-labs.io/agent-name":"w1"`
	for _, c := range []struct{ name, annotations, meta, want string }{
		{"a copy that is being deleted", copied, cascades + "," + going, "update"},
		{"a copy", copied, cascades, "nothing"},
		{"an Application of the hub", ``, cascades + "," + going, "nothing"},
		{"a copy of another agent", strings.Replace(copied, `"w1"`, `"w2"`, 1), cascades + "," + going, "nothing"},
	} {
		if got := outcome(ifChanged(l.removeFinalizers)(spokeApp(t, c.annotations, c.meta))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAssignCommandID_Once(t *testing.T) {
	p := newPair(t, kind.Managed)
	l := p.sides[kind.Hub].syncs["w1"]
	o := object(t, `{"metadata":{"name":"a","namespace":"w1","uid":"u","resourceVersion":"3"},"spec":{"destination":{"name":"w1"}},"operation":{"sync":{}}}`)
	d := ifChanged(l.assignCommandID)(o)
	if outcome(d) != "update" {
		t.Fatalf("%s", outcome(d))
	}
	if got := outcome(ifChanged(l.assignCommandID)(d.object)); got != "nothing" {
		t.Errorf("an operation with an ID: %s", got)
	}
}

func TestRefresh_KeepsIDWhilePartIsPending(t *testing.T) {
	p := newPair(t, kind.Managed)
	l := p.sides[kind.Hub].syncs["w1"]
	note := func(annotations string) string {
		l.recordRefresh(object(t, `{"metadata":{"name":"a","namespace":"w1","annotations":{`+annotations+`}},"spec":{"destination":{"name":"w1"},"sourceHydrator":{}}}`))
		return l.refreshNonce(engine.Key{Name: "a"})
	}
	refresh, hydrate := `"argocd.argoproj.io/refresh":"normal"`, `"argocd.argoproj.io/hydrate":"normal"`
	first := note(refresh + "," + hydrate)
	if got := note(hydrate); got != first || first == "" {
		t.Errorf("after the refresh is done the rest is called %q, was %q", got, first)
	}
	second := note(refresh + "," + hydrate)
	if second == first {
		t.Error("a second refresh has the name of the first")
	}
	if got := note(``); got != "" {
		t.Errorf("nothing is pending, but is called %q", got)
	}

	// Since Argo CD 3.5 a second request while the first is pending differs by its time.
	at := func(second string) string {
		return refresh + `,"argocd.argoproj.io/refresh-timestamp":"2026-01-01T00:00:0` + second + `Z"`
	}
	first = note(at("1"))
	if again := note(at("1")); again != first {
		t.Errorf("the same request is called %q and %q", first, again)
	}
	if second := note(at("2")); second == first {
		t.Error("a second request has the name of the first")
	}
}

func TestExcludedScope_AgentRemovesNothing(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.connect()
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	l := p.sides[kind.Hub].syncs["w1"]
	l.env.Agent.ExcludedScopes = "," + kind.ApplicationScope + ","
	before := p.writes
	l.remove(engine.Remove{Scope: kind.ApplicationScope, Key: engine.Key{Name: "a"}, Ticket: 99})
	if n := len(l.reconciler.objectQueues); n > 0 || p.writes != before {
		t.Errorf("%d objects are being changed", n)
	}
}

func TestContent_BelongsToRequestedKey(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	l := p.sides[kind.Hub].syncs["w1"]
	l.env.SpokeArgoNamespace = "argocd"
	o := object(t, `{"metadata":{"name":"x.b","namespace":"w1","uid":"u","resourceVersion":"9","annotations":{"argocd.argoproj.io/refresh":"normal",
		"argocd.argoproj.io/source-uid":"s1","argocd.argoproj.io/principal-uid":"principal-1","argocd-agent.argoproj-labs.io/agent-name":"w1","argocd-agent.argoproj-labs.io/source-name":"x/b"}},"spec":{"destination":{"name":"w1"}}}`)
	p.step(kind.Hub, Observed{Resource: kind.Applications, Object: o})
	if _, _, ok := l.Content(kind.CommandScope, engine.Key{Namespace: "x", Name: "b"}); !ok {
		t.Error("its command is not found")
	}
	if _, _, ok := l.Content(kind.CommandScope, engine.Key{Name: "x.b"}); ok {
		t.Error("its command is given to another Application")
	}
}

func TestSourceRevision_RepositoryHasThatOfItsProject(t *testing.T) {
	f := newRepositoryHarness(t)
	f.hub(seen(kind.AppProjects, f.project(9, "w1")))
	f.hub(seen(kind.Secrets, f.repository(5, web)))
	l := f.sides[kind.Hub].syncs["w1"]
	if got := l.SourceRevision(kind.RepositoryScope, engine.Key{Name: "repo"}); got != 9 {
		t.Errorf("made of revision %d", got)
	}
	if least, most := l.View(kind.RepositoryScope); least != 5 || most != 9 {
		t.Errorf("seen completely up to %d, something up to %d", least, most)
	}
	f.hub(Bookmark{Resource: kind.Secrets, Revision: 20})
	if least, most := l.View(kind.RepositoryScope); least != 9 || most != 20 {
		t.Errorf("seen completely up to %d, something up to %d", least, most)
	}
}

func TestFrozen_OnlyOwnedObjectCountsAsEqual(t *testing.T) {
	_, l := spokeSync(t)
	s := l.scope(kind.ApplicationScope)
	if d := l.leaveUnchanged(s, spokeApp(t, ours, ``)); !d.leftUnchanged || outcome(d) != "nothing" {
		t.Errorf("ours: %s", outcome(d))
	}
	for name, local := range map[string]*kind.Object{"no object": nil, "not ours": spokeApp(t, ``, ``), "of another principal": spokeApp(t, ofOther, ``)} {
		if d := l.leaveUnchanged(s, local); d.leftUnchanged || outcome(d) != "fail NotAllowed" {
			t.Errorf("%s: %s", name, outcome(d))
		}
	}
}

func TestMemory_OlderRecordDoesNotLowerSeen(t *testing.T) {
	newer := Memory{Store: engine.Store{UID: "h", Revision: 9}, Seen: []engine.Seen{{Scope: "application", Revision: 9}}}
	older := Memory{Store: engine.Store{UID: "h", Revision: 5}, Seen: []engine.Seen{{Scope: "application", Revision: 5}, {Scope: "appproject", Revision: 4}}}
	got := newer.With(older)
	if got.Store.Revision != 9 || FormatSeen(got.Seen) != "application=9,appproject=4" {
		t.Errorf("%+v", got)
	}
}

func TestMemory_UntrustedStoreStaysUntrusted(t *testing.T) {
	trusted := Memory{Store: engine.Store{UID: "h", Revision: 9}}
	untrusted := trusted
	untrusted.StoreUntrusted = true
	if !trusted.With(untrusted).StoreUntrusted || !untrusted.With(trusted).StoreUntrusted || trusted.With(trusted).StoreUntrusted {
		t.Error("a process that trusts the store overrules one that does not")
	}
}

// A command that another process has begun does not begin again. One that this process has begun, and whose write failed,
// does.
func TestRemembered_CommandsOfAnotherProcess(t *testing.T) {
	n := newPair(t, kind.Managed).sides[kind.Spoke]
	n.commands.begun = []string{"mine"}
	n.Step(1_000_000, Remembered{Memory: Memory{Commands: []string{"mine", "theirs"}}})
	if !slices.Equal(n.commands.past, []string{"theirs"}) || !slices.Equal(n.commands.begun, []string{"mine", "theirs"}) {
		t.Errorf("%+v", n.commands)
	}
}

func TestMemory_CommandsAreBounded(t *testing.T) {
	var ids []string
	for i := range 2 * maxCommands {
		ids = withCommands(ids, fmt.Sprint("c", i))
	}
	if last := ids[len(ids)-1]; len(ids) != maxCommands || last != fmt.Sprint("c", 2*maxCommands-1) {
		t.Errorf("%d IDs, the last is %s", len(ids), last)
	}
	l := newPair(t, kind.Autonomous).sides[kind.Spoke].syncs[""]
	key := engine.Key{Name: "a"}
	for i := range 2 * maxExecuted {
		content := fmt.Sprintf(`{"operation":{"info":[{"name":%q,"value":"c%d"}]}}`, kind.CommandInfo, i)
		l.begun(engine.Apply{Key: key, Content: []byte(content)})
	}
	if got := l.executed[key]; len(got) != maxExecuted || got[maxExecuted-1] != fmt.Sprint("c", 2*maxExecuted-1) {
		t.Errorf("%v", got)
	}
}

func TestMemory_KeepsCommandsOfEveryHub(t *testing.T) {
	one := Memory{Store: engine.Store{UID: "h1"}, Commands: []string{"c1"}}
	two := Memory{Store: engine.Store{UID: "h2"}, Commands: []string{"c2"}}
	for _, got := range []Memory{one.With(two), one.With(Memory{Commands: []string{"c2"}})} {
		if strings.Join(got.Commands, " ") != "c1 c2" {
			t.Errorf("%+v", got)
		}
	}
}
