package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// recordHub keeps what is written on the hub.
func (p *pair) recordHub() *[]Write {
	var writes []Write
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Hub {
			writes = append(writes, w)
		}
		return false
	}
	return &writes
}

// deleteWithCascade has a user delete the hub's Application a together with its resources.
func (p *pair) deleteWithCascade() {
	p.t.Helper()
	uid := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
	hub := set(p.t, []byte(deleting(p.t, app("w1", "a", "default", "v1"))), `"`+uid+`"`, "metadata", "uid")
	p.user(kind.Hub, ref("w1", "a"), string(hub))
}

func (p *pair) hubApp() *kind.Object { return p.stores[kind.Hub].objects[ref("w1", "a")] }

// The spoke reports the end of an Application. Between that and the write, the hub's Application becomes another one.
func TestFinalized_AppliesToOneApplication(t *testing.T) {
	p := managedApp(t)
	ends := 0
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Hub || w.Reason != "remove finalizers after deletion on the spoke" {
			return false
		}
		if ends++; ends > 1 {
			t.Errorf("the finalizer is taken from %s", w.Object.UID())
			return false
		}
		next := p.stores[kind.Hub].put(w.Ref, []byte(deleting(t, app("w1", "a", "default", "v2"))), true)
		p.stale(side, w)
		p.step(side, Observed{Resource: w.Ref.Resource, Object: next})
		p.wires = [2][]engine.Message{} // the spoke has not heard of the next one
		return true
	}
	p.deleteWithCascade()
	if ends != 1 {
		t.Errorf("%d writes", ends)
	}
}

func TestFinalized_PendingWriteAppliesToOneApplication(t *testing.T) {
	p := newPair(t, kind.Managed)
	setNote(&p.sides[kind.Hub].syncs["w1"].finalized, engine.Key{Name: "a"}, "UID of an earlier one")
	writes := p.recordHub()
	p.user(kind.Hub, ref("w1", "a"), deleting(t, app("w1", "a", "default", "v1")))
	if len(*writes) > 0 {
		t.Errorf("the hub writes: %s", (*writes)[0].Reason)
	}
}

// An agent reports that an Application is gone that is not being deleted.
func TestFinalized_KeepsFinalizerOfLiveApplication(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Hub, ref("w1", "a"), quoted(resourcesFinalizer), "metadata", "finalizers")
	l := p.sides[kind.Hub].syncs["w1"]
	content, _, _ := l.Content(kind.ApplicationScope, engine.Key{Name: "a"})
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Received{Session: p.session,
		Message: engine.Finished{Scope: kind.ApplicationScope, Key: engine.Key{Name: "a"}, Version: engine.VersionOf(content)}}})
	if !kind.HasCascade(p.hubApp()) {
		t.Error("its finalizer is gone")
	}
}

func TestFinalized_IsRetriedAfterFailedWrite(t *testing.T) {
	p := managedApp(t)
	fails := 1
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Hub || w.Reason != "remove finalizers after deletion on the spoke" || fails == 0 {
			return false
		}
		fails--
		p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Unavailable, Message: "etcd leader changed"}})
		return true
	}
	p.deleteWithCascade()
	if !kind.HasCascade(p.hubApp()) {
		t.Fatal("the first write has not failed")
	}
	wake, ok := p.sides[kind.Hub].NextWake()
	if !ok || wake > p.now+requeueDelay {
		t.Fatalf("wants to be woken at %d, now it is %d", wake, p.now)
	}
	p.advanceTime(10 * engine.Second)
	if kind.HasCascade(p.hubApp()) {
		t.Error("it stays in Deleting")
	}
}

func TestCommand_WaitingIsNotRejected(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Spoke, ref("argocd", "a"), `{"sync":{},"initiatedBy":{"automated":true}}`, "operation")
	writes := p.recordHub()
	p.requestOperation(`{"sync":{"revision":"abc"}}`)
	p.advanceTime(10 * engine.Second)
	for _, w := range *writes {
		if w.Reason == "fail rejected command" {
			t.Fatal("it is refused")
		}
	}
	if p.hubApp().Get("operation") == nil {
		t.Error("it is no longer pending")
	}
}

func TestCommand_RejectionCoversOnlySentCommands(t *testing.T) {
	p := rejectingPair(t)
	p.failRejectionWrites(1000, nil)
	p.requestOperation(`{"sync":{"revision":"abc"}}`)
	c := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, c.Raw(), `{}`, "metadata", "labels")))
	writes := p.recordHub()
	p.edit(kind.Hub, ref("w1", "a"), `{"argocd.argoproj.io/refresh":"normal"}`, "metadata", "annotations") // together they are another command
	for _, w := range *writes {
		if w.Reason == "fail rejected command" {
			t.Errorf("written: %s", w.Object.Get("status", "operationState"))
		}
	}
}

func deletingProject() string {
	return `{"metadata":{"name":"web","namespace":"argocd",` + cascades + `,` + going + `},"spec":{"destinations":[{"name":"w1","namespace":"*"}],"sourceNamespaces":["*"]}}`
}

func projectNamed(name string) kind.Ref {
	return kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: name}
}

func TestFinalizeProject_AfterLastApplication(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "web", "v1"))
	p.user(kind.Hub, projectNamed("web"), deletingProject())
	if len(p.stores[kind.Hub].objects[projectNamed("web")].Finalizers()) == 0 {
		t.Fatal("its finalizers are removed while an Application uses it")
	}
	p.removeOnHub(ref("w1", "b"), true)
	if len(p.stores[kind.Hub].objects[projectNamed("web")].Finalizers()) > 0 {
		t.Error("it stays")
	}
}

// Between the decision and the write, the project is used again, or is another one.
func TestFinalizeProject_ChecksApplicationsAgain(t *testing.T) {
	for name, change := range map[string]func(*pair) string{
		"used again": func(p *pair) string {
			p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "web", "v1"))
			return string(set(p.t, p.stores[kind.Hub].objects[projectNamed("web")].Raw(), `{"x":"y"}`, "metadata", "labels"))
		},
		"created again": func(*pair) string {
			return strings.Replace(deletingProject(), ","+going, "", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			tries := 0
			p.hook = func(side kind.Side, w Write) bool {
				if side != kind.Hub || w.Ref != projectNamed("web") {
					return false
				}
				if tries++; tries > 1 {
					return false
				}
				body := change(p)
				if name == "created again" {
					delete(p.stores[side].objects, w.Ref)
				}
				next := p.stores[side].put(w.Ref, []byte(body), name == "created again")
				p.stale(side, w)
				p.step(side, Observed{Resource: w.Ref.Resource, Object: next})
				return true
			}
			p.user(kind.Hub, projectNamed("web"), deletingProject())
			if tries != 1 {
				t.Errorf("its finalizers are taken off, %d writes", tries)
			}
		})
	}
}

func TestRefresh_EndsWithoutItsAnnotation(t *testing.T) {
	p := managedApp(t)
	p.edit(kind.Hub, ref("w1", "a"), `{"argocd.argoproj.io/refresh":"normal"}`, "metadata", "annotations")
	if p.replica().Annotation(kind.RefreshAnnotation) == "" {
		t.Fatal("the refresh has not arrived")
	}
	// The controller has refreshed. An ApplicationSet has removed our record.
	annotations := `{"argocd.argoproj.io/source-uid":"` + p.replica().Annotation(kind.SourceUID) + `","argocd.argoproj.io/principal-uid":"principal-1"}`
	p.edit(kind.Spoke, ref("argocd", "a"), annotations, "metadata", "annotations")
	if got := p.hubApp().Annotation(kind.RefreshAnnotation); got != "" {
		t.Errorf("the hub still waits for a refresh: %s", got)
	}
}

func TestRefresh_ForgottenWithApplication(t *testing.T) {
	p := managedApp(t)
	p.user(kind.Hub, ref("w1", "b"), app("w1", "b", "default", "v1"))
	p.edit(kind.Hub, ref("w1", "a"), `{"argocd.argoproj.io/refresh":"normal"}`, "metadata", "annotations")
	p.removeOnHub(ref("w1", "a"), true)
	if n := len(p.sides[kind.Spoke].syncs[""].refreshed); n > 0 {
		t.Errorf("%d refreshes are remembered", n)
	}
}

func TestDeletedApplications_AreBounded(t *testing.T) {
	p := managedApp(t)
	n := p.sides[kind.Spoke]
	lose := func() {
		o := p.replica()
		p.hook = func(kind.Side, Write) bool { return true } // it is not put back
		delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
		p.step(kind.Spoke, Deleted{Ref: ref("argocd", "a"), UID: o.UID()})
	}
	lose()
	if len(n.deleted) != 1 {
		t.Fatalf("%d are remembered", len(n.deleted))
	}
	p.now += deletedTTL
	p.step(kind.Spoke, Tick{})
	if len(n.deleted) != 0 {
		t.Errorf("%d are remembered forever", len(n.deleted))
	}

	p = managedApp(t)
	n = p.sides[kind.Spoke]
	for i := range maxDeleted {
		n.deleted[ref("argocd", fmt.Sprint("x", i))] = deletedApplication{at: p.now}
	}
	lose()
	if len(n.deleted) > maxDeleted {
		t.Errorf("%d are remembered", len(n.deleted))
	}
}
