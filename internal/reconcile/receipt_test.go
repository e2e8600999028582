package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// rewrite changes members of an object by hand; nil removes one.
func (p *pair) rewrite(side kind.Side, ref kind.Ref, changes map[string]any) {
	p.t.Helper()
	body := p.stores[side].objects[ref].Raw()
	for _, path := range []string{"metadata.annotations", "operation", "status"} {
		value, ok := changes[path]
		if !ok {
			continue
		}
		var err error
		if value == nil {
			body, err = rawjson.Remove(body, strings.Split(path, ".")...)
		} else {
			body, err = rawjson.Set(body, []byte(value.(string)), strings.Split(path, ".")...)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.user(side, ref, string(body))
}

// Another tool removes every annotation that it does not know, such as the ApplicationSet controller of an autonomous
// cluster or a user of a managed one who replaces the object. Then another operation replaces the last operation state:
// the Application no longer records which commands were executed. The hub can still assume that one is pending, because
// it was disconnected when the command ran.
func TestReceipt_CommandRunsOnceWithoutAnnotation(t *testing.T) {
	for _, c := range []struct {
		name      string
		mode      kind.Mode
		restarted bool // the agent
		replaced  bool // the replica is deleted, and the hub restores it
		refused   bool
	}{
		{"autonomous, in one process", kind.Autonomous, false, false, false},
		{"autonomous, by the next process", kind.Autonomous, true, false, true},
		{"managed, in one process", kind.Managed, false, false, false},
		{"managed, by the next process", kind.Managed, true, false, true},
		{"managed, on another replica", kind.Managed, false, true, true},
		{"managed, on another replica by the next process", kind.Managed, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, c.mode)
			p.connect()
			if c.mode == kind.Managed {
				p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
			} else {
				p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
			}
			memory := p.remembered()
			runs := 0
			count := func(p *pair) {
				inner := p.hook
				p.hook = func(side kind.Side, w Write) bool {
					if side == kind.Spoke && w.Ref.Name == "a" && strings.Contains(string(w.Object.Get("operation")), "abc") {
						runs++
					}
					return inner != nil && inner(side, w)
				}
			}
			count(p)
			// The hub does not hear what becomes of it.
			p.rewrite(kind.Hub, ref("w1", "a"), map[string]any{"operation": `{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"}}`})
			if runs != 1 {
				t.Fatalf("it ran %d times", runs)
			}
			hub := p.stores[kind.Hub].objects[ref("w1", "a")]
			pending, err := rawjson.Set(hub.Raw(), []byte(fmt.Sprintf(`{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"},"info":[{"name":%q,"value":%q}]}`, kind.CommandInfo, commandOf(p.stores[kind.Spoke].objects[ref("argocd", "a")]))), "operation")
			if err != nil {
				t.Fatal(err)
			}
			if pending, err = rawjson.Remove(pending, "status", "operationState"); err != nil {
				t.Fatal(err)
			}
			p.disconnect()
			p.user(kind.Hub, ref("w1", "a"), string(pending))
			// It ends; its annotations are removed; and auto-sync has something to do.
			p.rewrite(kind.Spoke, ref("argocd", "a"), map[string]any{"metadata.annotations": nil, "operation": nil,
				"status": `{"operationState":{"operation":{"sync":{"revision":"def"},"initiatedBy":{"automated":true}},"phase":"Succeeded","startedAt":"2026-01-01T00:00:00Z","finishedAt":"2026-01-01T00:00:05Z"}}`})
			if c.replaced {
				old := p.stores[kind.Spoke].objects[ref("argocd", "a")]
				delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
				p.stores[kind.Spoke].rev++
				p.step(kind.Spoke, Deleted{Ref: ref("argocd", "a"), UID: old.UID(), Revision: uint64(p.stores[kind.Spoke].rev)})
			}
			if c.restarted {
				q := p.restartWith(*memory, uint64(p.stores[kind.Hub].rev), sortedStore(p.stores[kind.Hub])...)
				count(q)
				p = q
			}
			p.connect()
			p.advanceTime(60 * engine.Second)
			if p.stores[kind.Spoke].objects[ref("argocd", "a")] == nil {
				t.Fatal("it was not restored")
			}
			if runs != 1 {
				t.Errorf("it ran %d times", runs)
			}
			after := p.stores[kind.Hub].objects[ref("w1", "a")]
			if c, _ := kind.Pending(after, &p.sides[kind.Hub].syncs["w1"].env); after.Get("operation") != nil || !c.Empty() {
				t.Errorf("it waits forever on the hub: %s", after.Get("operation"))
			}
			if said := string(after.Get("status", "operationState", "message")); strings.Contains(said, "not begun a second time") != c.refused {
				t.Errorf("refused should be %v: %s", c.refused, after.Get("status"))
			}
		})
	}
}

func commandOf(o *kind.Object) string {
	list, _ := rawjson.Elements(o.Get("operation", "info"))
	for _, info := range list {
		if rawjson.Text(info, "name") == kind.CommandInfo {
			return rawjson.Text(info, "value")
		}
	}
	return ""
}

// A backup of the hub may have a command that had no ID yet. Put back, it is the
// same command: what has been carried out since is not carried out again. Two
// equal requests are two commands.
func TestReceipt_CommandHasOneID(t *testing.T) {
	const click = `{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"}}`
	stamped := func(t *testing.T, now engine.Time, versions ...*kind.Object) string {
		t.Helper()
		n := New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1"})
		id := ""
		step := func(in Input) (writes []Write) {
			for _, e := range n.Step(now, in) {
				if w, ok := e.(Write); ok {
					writes = append(writes, w)
				}
			}
			return writes
		}
		for _, r := range Resources() {
			in := List{Resource: r, Revision: 1}
			if r == kind.AppProjects {
				in.Objects = newPair(t, kind.Managed).openProjects("default")
			}
			step(in)
		}
		step(Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1"}})
		var writes []Write
		for i, o := range versions {
			if i > 0 && len(writes) == 1 { // the first try runs into the change
				step(WriteResult{ID: writes[0].ID, Failure: &Failure{Stale: true}})
			}
			if more := step(Observed{Resource: kind.Applications, Object: o}); len(more) > 0 {
				writes = more
			}
		}
		if len(writes) == 1 {
			id = commandOf(writes[0].Object)
		}
		if id == "" {
			t.Fatalf("no ID was given: %v", writes)
		}
		return id
	}
	clicked := func(uid, revision, annotation string) *kind.Object {
		body := []byte(app("w1", "a", "default", "v1"))
		for path, value := range map[string]string{"metadata.uid": uid, "metadata.resourceVersion": revision, "metadata.annotations": `{"x":"` + annotation + `"}`, "operation": click} {
			v := []byte(value)
			if strings.HasPrefix(path, "metadata.u") || strings.HasPrefix(path, "metadata.r") {
				v = rawjson.Quote(value)
			}
			var err error
			if body, err = rawjson.Set(body, v, strings.Split(path, ".")...); err != nil {
				t.Fatal(err)
			}
		}
		o, err := kind.Parse(body)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const day = 24 * 3600 * engine.Second
	first := stamped(t, 1_000_000, clicked("u1", "50", "a"))
	if got := stamped(t, 1_000_000+day, clicked("u1", "50", "a")); got != first {
		t.Errorf("put back from a backup it is %s, and was %s", got, first)
	}
	if got := stamped(t, 1_000_000, clicked("u1", "50", "a"), clicked("u1", "51", "b")); got != first {
		t.Errorf("changed before it had an ID, it is %s; found in a backup from before the change it would be %s", got, first)
	}
	if got := stamped(t, 1_000_000, clicked("u1", "60", "a")); got == first {
		t.Error("the next click is the same command")
	}
	if got := stamped(t, 1_000_000, clicked("u2", "50", "a")); got == first {
		t.Error("a click on another Application is the same command")
	}
}
