package reconcile

import (
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// writtenByAnother returns the replica of Application a as another process of this agent writes it, from the current
// object of the hub, which the principal of this session has not read.
func (p *pair) writtenByAnother(source string) *kind.Object {
	p.t.Helper()
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	body := p.replica().Raw()
	for path, value := range map[string]string{kind.SourceUID: source, kind.SourceRevisionAnnotation: hub.ResourceVersion()} {
		body = set(p.t, body, strconv.Quote(value), "metadata", "annotations", path)
	}
	body = set(p.t, body, string(hub.Get("spec", "source", "targetRevision")), "spec", "source", "targetRevision")
	return p.stores[kind.Spoke].put(ref("argocd", "a"), body, false)
}

func (p *pair) wantReplica(revision, source string) {
	p.t.Helper()
	o := p.replica()
	if o == nil {
		p.t.Fatal("the replica is deleted")
	}
	if got := string(o.Get("spec", "source", "targetRevision")); got != strconv.Quote(revision) || o.Annotation(kind.SourceUID) != source {
		p.t.Errorf("the replica has %s of %s", got, o.Annotation(kind.SourceUID))
	}
}

// A principal writes the status of another Application. The result is later than an edit that its watch has not shown
// yet, and says nothing about that edit.
func TestStaleView_OwnWriteIsNotView(t *testing.T) {
	p := managedApp(t)
	source := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.editUnseen(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	edited := p.stores[kind.Hub].rev
	p.edit(kind.Spoke, ref("argocd", "b"), `{"sync":{"status":"Synced"}}`, "status")
	if p.stores[kind.Hub].rev == edited {
		t.Fatal("the principal has not written the status")
	}
	if least, most := p.sides[kind.Hub].syncs["w1"].View(kind.ApplicationScope); least >= uint64(edited) || most >= uint64(edited) {
		t.Errorf("the principal claims to have read up to %d and %d, the edit is %d", least, most, edited)
	}
	p.step(kind.Spoke, Observed{Resource: kind.Applications, Object: p.writtenByAnother(source)})
	p.settle()
	p.wantReplica("v2", source)
}

// A job that finds its object changed decides again. If another process wrote the object from a newer view, it neither
// overwrites nor replaces it.
func TestStaleView_JobThatDecidesAgainKeepsNewerReplica(t *testing.T) {
	for name, c := range map[string]struct {
		source   string // of the newer replica; empty: as before
		recreate bool
	}{
		"edited":                             {},
		"recreated":                          {source: "another"},
		"recreated, and the policy recreate": {source: "another", recreate: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := managedApp(t)
			p.sides[kind.Spoke].cfg.Policy.Recreate = c.recreate
			source := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
			if c.source != "" {
				source = c.source
			}
			p.once(kind.Spoke, Update, func(w Write) {
				p.editUnseen(kind.Hub, ref("w1", "a"), `"v3"`, "spec", "source", "targetRevision")
				p.step(kind.Spoke, Observed{Resource: kind.Applications, Object: p.writtenByAnother(source)})
				p.stale(kind.Spoke, w)
			})
			p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
			p.wantReplica("v3", source)
		})
	}
}

// A source revision on an object that is not ours is of another hub, or was copied by a user. It blocks nothing.
func TestStaleView_RevisionOfForeignObjectDoesNotCount(t *testing.T) {
	_, l := spokeSync(t)
	const later = `,"` + kind.SourceRevisionAnnotation + `":"99"`
	apply := engine.Apply{Scope: kind.ApplicationScope, Key: engine.Key{Name: "a"}, Content: hubContent("s1", ``), View: 50}
	for name, c := range map[string]struct {
		annotations string
		want        string
	}{
		"ours":                 {ours + later, "fail Unavailable"},
		"of another principal": {ofOther + later, "update"},
	} {
		local := spokeApp(t, c.annotations, ``)
		if got := outcome(l.merge(l.scope(kind.ApplicationScope), ref("argocd", "a"), apply, local)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
