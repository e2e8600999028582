package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// The spoke's controller removes a field again and again, so drift correction is paused. The end of a deletion is still
// reported.
func TestCascade_EndsForContestedApplication(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	annotated := func(text, value string) string {
		return string(set(t, []byte(text), `{"contested":"`+value+`"}`, "metadata", "annotations"))
	}
	body := string(set(t, []byte(annotated(app("w1", "a", "default", "v1"), "1")), `["`+resourcesFinalizer+`"]`, "metadata", "finalizers"))
	strip := func(side kind.Side, r kind.Ref) {
		o := p.stores[side].objects[r]
		b := []byte(strings.ReplaceAll(string(o.Raw()), `"contested":`, `"nothing":`))
		p.step(side, Observed{Resource: r.Resource, Object: p.stores[side].put(r, b, false)})
	}
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Spoke {
			return false
		}
		switch w.Verb {
		case Create, Update:
			o := p.stores[side].put(w.Ref, w.Object.Raw(), w.Verb == Create)
			p.step(side, WriteResult{ID: w.ID, Object: o})
			p.step(side, Observed{Resource: w.Ref.Resource, Object: o})
			if w.Ref.Resource == kind.Applications && strings.Contains(string(o.Raw()), `"contested":`) {
				strip(side, w.Ref)
			}
		case Delete:
			o := p.stores[side].put(w.Ref, set(t, p.stores[side].objects[w.Ref].Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp"), false)
			p.step(side, WriteResult{ID: w.ID, Object: o})
			p.step(side, Observed{Resource: w.Ref.Resource, Object: o})
		}
		return true
	}
	p.user(kind.Hub, ref("w1", "a"), body)
	p.waitSeconds(20)
	for _, v := range []string{"2", "3"} {
		p.edit(kind.Hub, ref("w1", "a"), `{"contested":"`+v+`"}`, "metadata", "annotations")
	}
	uid := p.hubApp().UID()
	p.user(kind.Hub, ref("w1", "a"), annotated(string(set(t, []byte(deleting(t, app("w1", "a", "default", "v1"))), `"`+uid+`"`, "metadata", "uid")), "3"))
	p.waitSeconds(2)
	if o := p.replica(); o == nil || !o.IsDeleting() {
		t.Fatalf("not deleted: %v", o)
	}
	gone := p.replica()
	delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
	p.stores[kind.Spoke].rev++
	p.step(kind.Spoke, Deleted{Ref: ref("argocd", "a"), UID: gone.UID(), Revision: uint64(p.stores[kind.Spoke].rev)})
	p.settle()
	p.waitSeconds(5)
	if hub := p.hubApp(); hub != nil && len(hub.Finalizers()) > 0 {
		t.Errorf("the hub's Application still waits, finalizers %v", hub.Finalizers())
	}
}
