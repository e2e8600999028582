package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

var (
	offlineApp     = ref("argocd", "a")
	offlineProject = kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "default"}
	offlineSecret  = kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: "repo"}
	offlineKeys    = kind.Ref{Resource: kind.ConfigMaps, Namespace: "argocd", Name: "argocd-gpg-keys-cm"}
)

// offlineField is a field of each kind that the hub owns.
var offlineField = map[kind.Ref][]string{
	offlineApp:     {"spec", "source", "targetRevision"},
	offlineProject: {"spec", "description"},
	offlineSecret:  {"data", "password"},
	offlineKeys:    {"data", "AAAA"},
}

// newOfflinePair returns a pair in which a spoke got one object of each kind from its hub, and has lost the connection.
func newOfflinePair(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	project := strings.Replace(openProject("default"), `"spec":{`, `"spec":{"description":"of the hub",`, 1)
	p.user(kind.Hub, offlineProject, project)
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.user(kind.Hub, offlineSecret, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"repo","namespace":"argocd","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"url":"aHR0cHM6Ly9naXQveA==","project":"ZGVmYXVsdA==","password":"b25l"}}`)
	p.user(kind.Hub, offlineKeys, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-gpg-keys-cm","namespace":"argocd"},"data":{"AAAA":"one"}}`)
	p.step(kind.Hub, Bookmark{Resource: kind.AppProjects, Revision: uint64(p.stores[kind.Hub].rev)})
	p.settle()
	p.waitSeconds(30)
	for r := range offlineField {
		if p.stores[kind.Spoke].objects[r] == nil {
			t.Fatalf("the spoke does not have %s", r.Name)
		}
	}
	p.disconnect()
	return p
}

func (p *pair) spokeField(r kind.Ref) string {
	o := p.stores[kind.Spoke].objects[r]
	if o == nil {
		return "none"
	}
	return strings.Trim(string(o.Get(offlineField[r]...)), `"`)
}

// tamper changes the hub's field of an object of the spoke.
func (p *pair) tamper(r kind.Ref, value string) {
	p.t.Helper()
	body, err := rawjson.Set(p.stores[kind.Spoke].objects[r].Raw(), rawjson.Quote(value), offlineField[r]...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.user(kind.Spoke, r, string(body))
}

func (p *pair) removeOnSpoke(r kind.Ref) {
	old := p.stores[kind.Spoke].objects[r]
	delete(p.stores[kind.Spoke].objects, r)
	p.stores[kind.Spoke].rev++
	p.step(kind.Spoke, Deleted{Ref: r, UID: old.UID(), Revision: uint64(p.stores[kind.Spoke].rev)})
	p.settle()
}

// shortSession opens a session that ends before anything is compared.
func (p *pair) shortSession() {
	for _, r := range Resources() {
		p.step(kind.Hub, Bookmark{Resource: r, Revision: p.revision})
		p.step(kind.Spoke, Bookmark{Resource: r, Revision: p.revision})
	}
	p.session++
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Connected{Session: p.session, Store: engine.Store{UID: "h", Revision: p.revision}}})
	p.step(kind.Spoke, FromPeer{Input: engine.Connected{Session: p.session, Epoch: engine.Epoch{Incarnation: p.session}, Store: engine.Store{UID: "s", Revision: p.revision}}})
	hello := p.wires[kind.Hub][0]
	p.wires[kind.Hub] = nil
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Received{Session: p.session, Message: hello}})
	welcome := p.wires[kind.Spoke][0]
	p.step(kind.Spoke, FromPeer{Input: engine.Received{Session: p.session, Message: welcome}})
	if status, _ := p.sides[kind.Spoke].Status(""); !status.Connected {
		p.t.Fatal("the session did not open")
	}
	p.disconnect()
}

func TestOffline_RevertsLocalEditsAndDeletions(t *testing.T) {
	p := newOfflinePair(t)
	for r := range offlineField {
		before := p.spokeField(r)
		var writes []Write
		p.hook = func(_ kind.Side, w Write) bool { writes = append(writes, w); return false }
		p.tamper(r, "aGFja2Vk")
		if got := p.spokeField(r); got != before {
			t.Errorf("%s: an edit stays: %s, want %s", r.Name, got, before)
		}
		p.waitSeconds(700)
		p.removeOnSpoke(r)
		if got := p.spokeField(r); got != before {
			t.Errorf("%s: after a deletion it is %s, want %s", r.Name, got, before)
		}
		for _, w := range writes {
			if !w.Offline || w.WhileOpen || w.Verb == Delete {
				t.Errorf("%s: write %+v", r.Name, w)
			}
		}
		p.waitSeconds(700)
		if len(writes) != 2 {
			t.Errorf("%s: %d writes, want 2", r.Name, len(writes))
		}
	}

	p.hook = nil
	writes := p.writes
	p.connect()
	p.waitSeconds(120)
	if p.writes != writes {
		t.Errorf("%d writes after the reconnect: what was restored is what the hub has", p.writes-writes)
	}
}

func TestOffline_CompetingWriterIsSlowedDown(t *testing.T) {
	p := newOfflinePair(t)
	writes := p.writes
	for i := range 600 {
		p.tamper(offlineApp, fmt.Sprint("local-", i))
		p.now += engine.Second
		p.step(kind.Spoke, Tick{})
	}
	if n := p.writes - writes; n < 3 || n > 15 {
		t.Errorf("%d writes in 600 s", n)
	}
	p.waitSeconds(700)
	if got := p.spokeField(offlineApp); got != "v1" {
		t.Errorf("in the end it is %s", got)
	}
}

// What the hub has given up stays deleted, also if the agent could not delete it before it lost the connection.
func TestOffline_DoesNotRestoreWhatTheHubGaveUp(t *testing.T) {
	for _, r := range []kind.Ref{offlineApp, offlineSecret, offlineKeys} {
		p := newOfflinePair(t)
		p.connect()
		p.waitSeconds(30)
		p.hook = func(side kind.Side, w Write) bool { // the API server of the spoke does not delete
			if side == kind.Spoke && w.Verb == Delete {
				p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Unavailable, Message: "no"}})
				return true
			}
			return false
		}
		hub := r
		if r.Resource == kind.Applications {
			hub = ref("w1", "a")
		}
		p.removeOnHub(hub, true)
		p.waitSeconds(30)
		if p.stores[kind.Spoke].objects[r] == nil {
			t.Fatalf("%s: the test needs the object", r.Name)
		}
		p.disconnect()
		p.hook = nil
		p.shortSession()
		p.waitSeconds(60)
		if r.Resource != kind.Secrets {
			p.tamper(r, "local")
		}
		p.removeOnSpoke(r)
		p.waitSeconds(700)
		if p.stores[kind.Spoke].objects[r] != nil {
			t.Errorf("%s came back", r.Name)
		}
	}
}

// An Application that is being deleted with its resources is not created again when it is gone.
func TestOffline_DoesNotRestoreCascadedDeletion(t *testing.T) {
	p := newOfflinePair(t)
	p.connect()
	p.waitSeconds(30)
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Spoke && w.Verb == Delete { // finalizers keep it for a while
			body := deleting(t, string(w.Object.Raw()))
			o := p.stores[side].put(w.Ref, []byte(body), false)
			p.step(side, WriteResult{ID: w.ID, Object: o})
			return true
		}
		return false
	}
	p.user(kind.Hub, ref("w1", "a"), deleting(t, app("w1", "a", "default", "v1")))
	if o := p.stores[kind.Spoke].objects[offlineApp]; o == nil || !o.IsDeleting() {
		t.Fatal("the test needs a terminating Application")
	}
	p.disconnect()
	p.removeOnSpoke(offlineApp)
	p.waitSeconds(700)
	if p.stores[kind.Spoke].objects[offlineApp] != nil {
		t.Error("it came back")
	}
}

func TestOffline_RespectsPolicyAndUntrustedStore(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pair)
		want   string
	}{
		"nothing forbids it": {func(*pair) {}, "v1"},
		"a freeze": {func(p *pair) {
			p.step(kind.Spoke, PolicyChanged{ID: "1", Policy: testPolicy{}, Frozen: "changes are frozen"})
		}, "local"},
		"a policy that forbids the Application": {func(p *pair) { p.step(kind.Spoke, PolicyChanged{ID: "1", Policy: testPolicy{repo: "https://git/x"}}) }, "local"},
		"an untrusted store": {func(p *pair) {
			memory := p.sides[kind.Spoke].Memory()
			memory.StoreUntrusted = true
			p.step(kind.Spoke, Remembered{Memory: memory})
		}, "local"},
	} {
		p := newOfflinePair(t)
		c.change(p)
		p.tamper(offlineApp, "local")
		if got := p.spokeField(offlineApp); got != c.want {
			t.Errorf("%s: the Application is at %s, want %s", name, got, c.want)
		}
		p.removeOnSpoke(ref("argocd", "b"))
		if restored := p.stores[kind.Spoke].objects[ref("argocd", "b")] != nil; restored != (c.want == "v1") {
			t.Errorf("%s: a deleted Application is restored: %v", name, restored)
		}
	}
}

// Another process of the agent wrote a newer version. It is what the hub sent last.
func TestOffline_VersionOfAnotherProcessIsTheReference(t *testing.T) {
	p := newOfflinePair(t)
	q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
	q.connect()
	q.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	if got := q.spokeField(offlineApp); got != "v2" {
		t.Fatalf("the test needs a newer version, not %s", got)
	}
	p.now = q.now
	p.step(kind.Spoke, Observed{Resource: kind.Applications, Object: p.stores[kind.Spoke].objects[offlineApp]})
	if got := p.spokeField(offlineApp); got != "v2" {
		t.Fatalf("it was reverted to %s", got)
	}
	p.tamper(offlineApp, "local")
	if got := p.spokeField(offlineApp); got != "v2" {
		t.Errorf("after an edit it is %s", got)
	}
}

func TestOffline_ReferencesAreBounded(t *testing.T) {
	p := newOfflinePair(t)
	l := p.sides[kind.Spoke].syncs[""]
	sum := 0
	for _, r := range l.references.items {
		if r.object != nil {
			sum += len(r.object.Raw())
		}
	}
	if sum == 0 || sum != l.references.bytes {
		t.Fatalf("%d bytes are counted, there are %d", l.references.bytes, sum)
	}
	l.references.bytes = maxReferenceBytes
	p.user(kind.Spoke, offlineApp, string(set(t, p.stores[kind.Spoke].objects[offlineApp].Raw(), `{"sync":{"status":"Synced"}}`, "status")))
	p.tamper(offlineApp, "local")
	if got := p.spokeField(offlineApp); got != "local" {
		t.Errorf("beyond the bound it is %s", got)
	}
	p.connect()
	p.waitSeconds(30)
	if got := p.spokeField(offlineApp); got != "v1" {
		t.Errorf("the next session leaves it at %s", got)
	}
}

// After a restart without the hub, objects that have their recorded version are what is restored. Others wait for the hub.
func TestOffline_RestartUsesRecordedVersions(t *testing.T) {
	p := newOfflinePair(t)
	memory := p.sides[kind.Spoke].Memory()
	edited := ref("argocd", "b")
	body := set(t, p.stores[kind.Spoke].objects[edited].Raw(), `"while the agent was down"`, "spec", "source", "targetRevision")
	p.stores[kind.Spoke].put(edited, body, false)
	q := p.restartWith(memory, uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
	for r := range offlineField {
		before := q.spokeField(r)
		q.tamper(r, "aGFja2Vk")
		if got := q.spokeField(r); got != before {
			t.Errorf("%s: an edit stays: %s, want %s", r.Name, got, before)
		}
		q.waitSeconds(700)
		q.removeOnSpoke(r)
		want := before
		if r == offlineSecret || r == offlineKeys { // it may have been withdrawn before the restart
			want = "none"
		}
		if got := q.spokeField(r); got != want {
			t.Errorf("%s: after a deletion it is %s, want %s", r.Name, got, want)
		}
	}
	if got := q.spokeRevision("b"); got != "while the agent was down" {
		t.Errorf("b is at %s: what it should be is not known", got)
	}
	q.connect()
	q.waitSeconds(60)
	for _, r := range []kind.Ref{offlineSecret, offlineKeys} {
		if q.spokeField(r) == "none" {
			t.Errorf("%s is not back after the contact", r.Name)
		}
	}
	if got := q.spokeRevision("b"); got != "v1" {
		t.Errorf("after the contact b is at %s", got)
	}
}

func hubRef(r kind.Ref) kind.Ref {
	if r.Resource == kind.Applications {
		r.Namespace = "w1"
	}
	return r
}

func TestOffline_OrderToDeleteDuringWrite(t *testing.T) {
	for _, r := range []kind.Ref{offlineApp, offlineSecret} {
		p := newOfflinePair(t)
		p.connect()
		p.waitSeconds(120)
		var waiting *Write
		p.hook = func(side kind.Side, w Write) bool {
			if side == kind.Spoke && w.Ref == r && w.Verb == Update {
				waiting = &w
				return true
			}
			return false
		}
		o := p.stores[kind.Hub].objects[hubRef(r)]
		p.user(kind.Hub, hubRef(r), string(set(t, o.Raw(), `"dHdv"`, offlineField[r]...)))
		if waiting == nil {
			t.Fatal("the test needs a write")
		}
		p.removeOnHub(hubRef(r), true)
		p.waitSeconds(60) // the hub sends again what is not acknowledged
		p.disconnect()
		p.hook = nil
		p.write(kind.Spoke, *waiting)
		p.waitSeconds(60)
		p.removeOnSpoke(r)
		p.waitSeconds(700)
		if p.stores[kind.Spoke].objects[r] != nil {
			t.Errorf("%s came back", r.Name)
		}
	}
}

func (p *pair) removeUnsettled(r kind.Ref) {
	old := p.stores[kind.Spoke].objects[r]
	delete(p.stores[kind.Spoke].objects, r)
	p.stores[kind.Spoke].rev++
	p.step(kind.Spoke, Deleted{Ref: r, UID: old.UID(), Revision: uint64(p.stores[kind.Spoke].rev)})
}

func TestOffline_DeletedOnBothSidesStaysDeleted(t *testing.T) {
	for _, r := range []kind.Ref{offlineApp, offlineSecret, offlineKeys} {
		for _, watched := range []bool{true, false} {
			p := newOfflinePair(t)
			p.connect()
			p.waitSeconds(120)
			p.removeUnsettled(r)
			p.removeOnHub(hubRef(r), watched)
			p.waitSeconds(120)
			if p.stores[kind.Spoke].objects[r] != nil {
				t.Fatalf("%s: the test needs it to be gone", r.Name)
			}
			p.disconnect()
			p.waitSeconds(60)
			if p.stores[kind.Spoke].objects[r] != nil {
				t.Errorf("%s (watched %v) came back", r.Name, watched)
			}
		}
	}
}

func TestOffline_OrderToDeleteMissingObjectCounts(t *testing.T) {
	for _, r := range []kind.Ref{offlineApp, offlineSecret, offlineKeys} {
		p := newOfflinePair(t)
		p.connect()
		p.waitSeconds(120)
		p.removeUnsettled(r)
		p.wires = [2][]engine.Message{}
		p.removeOnHub(hubRef(r), true)
		p.disconnect()
		p.waitSeconds(60)
		if p.stores[kind.Spoke].objects[r] != nil {
			t.Errorf("%s came back", r.Name)
		}
	}
}

func failDeletions(p *pair) func(kind.Side, Write) bool {
	return func(side kind.Side, w Write) bool {
		if side == kind.Spoke && w.Verb == Delete {
			p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: "Unavailable", Message: "no"}})
			return true
		}
		return false
	}
}

func TestOffline_ShortSessionAfterRestartProvesNothing(t *testing.T) {
	for _, r := range []kind.Ref{offlineApp, offlineSecret, offlineKeys} {
		p := newOfflinePair(t)
		p.connect()
		p.waitSeconds(30)
		p.hook = failDeletions(p)
		p.removeOnHub(hubRef(r), true)
		p.waitSeconds(30)
		p.disconnect()
		q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
		q.revision = p.revision
		q.shortSession()
		q.waitSeconds(60)
		q.removeOnSpoke(r)
		q.waitSeconds(700)
		if q.stores[kind.Spoke].objects[r] != nil {
			t.Errorf("%s came back", r.Name)
		}
	}
}

func TestOffline_HeldDeletionAndShortSession(t *testing.T) {
	p := newOfflinePair(t)
	p.connect()
	p.waitSeconds(30)
	p.loseOnHub(kind.Applications, "a", "b")
	p.waitSeconds(120)
	if n := p.heldApps(kind.Spoke, ""); n != 2 {
		t.Fatalf("%d are held", n)
	}
	p.disconnect()
	p.shortSession()
	p.waitSeconds(60)
	p.user(kind.Spoke, offlineApp, string(set(t, p.stores[kind.Spoke].objects[offlineApp].Raw(), `{"sync":{"status":"Synced"}}`, "status")))
	p.removeOnSpoke(offlineApp)
	p.waitSeconds(700)
	if p.stores[kind.Spoke].objects[offlineApp] != nil {
		t.Error("it came back")
	}
}

func TestOffline_ObjectThatTheHubNeverSentStaysDeleted(t *testing.T) {
	for name, offline := range map[string]bool{"without a session": true, "in a session": false} {
		p := newOfflinePair(t)
		if !offline {
			p.connect()
			p.waitSeconds(120)
		}
		copied := ref("argocd", "copy")
		p.user(kind.Spoke, copied, string(set(t, p.stores[kind.Spoke].objects[offlineApp].Raw(), `"copy"`, "metadata", "name")))
		if !offline {
			p.disconnect()
		}
		p.waitSeconds(60)
		p.user(kind.Spoke, copied, string(set(t, p.stores[kind.Spoke].objects[copied].Raw(), `"mine"`, offlineField[offlineApp]...)))
		if got := p.spokeRevision("copy"); got != "mine" {
			t.Errorf("%s: an edit is reverted to %s", name, got)
		}
		p.removeOnSpoke(copied)
		p.waitSeconds(700)
		if p.stores[kind.Spoke].objects[copied] != nil {
			t.Errorf("%s: it came back", name)
		}
	}
}

func TestOffline_BackupOfWithdrawnCredential(t *testing.T) {
	p := newOfflinePair(t)
	backup := string(p.stores[kind.Spoke].objects[offlineSecret].Raw())
	p.connect()
	p.waitSeconds(120)
	p.removeOnHub(offlineSecret, true)
	p.waitSeconds(120)
	p.disconnect()
	p.waitSeconds(60)
	p.user(kind.Spoke, offlineSecret, backup)
	p.removeOnSpoke(offlineSecret)
	p.waitSeconds(700)
	if p.stores[kind.Spoke].objects[offlineSecret] != nil {
		t.Error("it came back")
	}
}

func TestOffline_OlderReplicaIsReverted(t *testing.T) {
	p := newOfflinePair(t)
	backup := string(p.stores[kind.Spoke].objects[offlineApp].Raw())
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.waitSeconds(60)
	p.disconnect()
	p.user(kind.Spoke, offlineApp, backup)
	p.waitSeconds(60)
	if got := p.spokeField(offlineApp); got != "v2" {
		t.Errorf("it is %s", got)
	}
}

func TestOffline_ContestedContentIsNoReference(t *testing.T) {
	p := newOfflinePair(t)
	p.connect()
	p.waitSeconds(120)
	for range 6 {
		if p.spokeField(offlineApp) != "local" {
			p.tamper(offlineApp, "local")
		}
		p.waitSeconds(60)
	}
	if got := p.spokeField(offlineApp); got != "local" {
		t.Fatalf("the test needs contested content, not %s", got)
	}
	p.disconnect()
	p.waitSeconds(60)
	if got := p.spokeField(offlineApp); got != "v1" {
		t.Errorf("it is %s", got)
	}
}

func TestOffline_ObjectOfAnotherHubStays(t *testing.T) {
	p := newOfflinePair(t)
	body := set(t, p.stores[kind.Spoke].objects[offlineApp].Raw(), `"principal-2"`, "metadata", "annotations", kind.PrincipalUID)
	p.user(kind.Spoke, offlineApp, string(set(t, body, `"theirs"`, offlineField[offlineApp]...)))
	p.waitSeconds(60)
	if got := p.spokeField(offlineApp); got != "theirs" {
		t.Errorf("it is %s", got)
	}
}

func TestOffline_DeletionBudgetIsNotUsed(t *testing.T) {
	p := newOfflinePair(t)
	n := p.sides[kind.Spoke]
	n.cfg.Policy.Recreate = true
	p.step(kind.Spoke, PolicyChanged{ID: "1", Policy: testPolicy{deletions: 1}})
	p.user(kind.Spoke, offlineApp, string(set(t, p.stores[kind.Spoke].objects[offlineApp].Raw(), `"another"`, "metadata", "annotations", kind.SourceUID)))
	if len(n.policy.deletions) != 0 {
		t.Errorf("%d deletions count", len(n.policy.deletions))
	}
}

func TestOffline_WaitsForPolicy(t *testing.T) {
	p := newOfflinePair(t)
	p.sides[kind.Spoke].cfg.AwaitPolicy = true
	q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
	q.tamper(offlineApp, "local")
	q.waitSeconds(60)
	q.step(kind.Spoke, PolicyChanged{ID: "1", Policy: testPolicy{}, Frozen: "changes are frozen"})
	q.waitSeconds(700)
	if got := q.spokeField(offlineApp); got != "local" {
		t.Errorf("in a freeze it is %s", got)
	}
	q.step(kind.Spoke, PolicyChanged{ID: "1", Policy: testPolicy{}})
	q.waitSeconds(700)
	if got := q.spokeField(offlineApp); got != "v1" {
		t.Errorf("after the freeze it is %s", got)
	}
}

// A user removes our annotations while the hub is unreachable. The object becomes ours again, and the hub still shows which
// fields its CRD dropped.
func TestOffline_DroppedFieldsAreStillShown(t *testing.T) {
	p := newPruningPair(t, kind.Managed)
	p.waitSeconds(30)
	if !strings.Contains(p.shown(), prunedField) {
		t.Fatalf("the hub shows %q", p.shown())
	}
	p.disconnect()
	body, err := rawjson.Remove(p.replica().Raw(), "metadata", "annotations")
	if err != nil {
		t.Fatal(err)
	}
	p.user(kind.Spoke, offlineApp, string(body))
	p.waitSeconds(30)
	if own := kind.ReadOwnership(p.replica(), &kind.Env{Side: kind.Spoke, PrincipalUID: "hub-1"}); len(own.Alias.Lost) == 0 {
		t.Errorf("restored with ownership %+v", own)
	}
	p.reconnect()
	p.waitSeconds(120)
	if !strings.Contains(p.shown(), prunedField) {
		t.Errorf("the hub shows %q", p.shown())
	}
}
