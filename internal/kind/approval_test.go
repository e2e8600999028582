package kind

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

var approvalNow = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// approve returns a hub's Application with an approval, as argocd-server writes it.
func approve(o *Object, value string) *Object { return o.withAnnotation(ApprovalAnnotation, value) }

func deletingAt(t *testing.T, o *Object, at string, finalizers ...string) *Object {
	t.Helper()
	d := edit(o)
	d.meta.Set("deletionTimestamp", rawjson.Quote(at))
	setStrings(&d.meta, "finalizers", finalizers)
	o, err := d.done()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// approvalSent returns what the hub sends for an approval, without its ID.
func approvalSent(t *testing.T, o *Object, w *Env) string {
	t.Helper()
	item, ok := CommandKind{}.Publish(o, w)
	approval := rawjson.Get(item.Content, "approve")
	if !ok || approval == nil {
		return ""
	}
	if rawjson.Text(approval, "id") == "" {
		t.Error("an approval without an ID")
	}
	content, err := rawjson.Remove(approval, "id")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestApproval_IsForWhatTheHubShows(t *testing.T) {
	const now = "2026-06-01T12:00:00Z"
	running := `{"operationState":{"phase":"Running","startedAt":"2031-01-01T00:00:00Z","operation":` + bySpoke + `}}`
	deletes := func(at string) func(*Object) *Object {
		return func(o *Object) *Object { return deletingAt(t, o, at, cascadeFinalizer) }
	}
	same := func(o *Object) *Object { return o }
	for _, c := range []struct {
		name              string
		w                 *Env
		operation, status string
		change            func(*Object) *Object
		value             string
		sent              string
		shown             string
	}{
		{"a running sync of the spoke, whose clock is years ahead", managedHub(), mirrored, running, same, now, `{"operation":{"startedAt":"2031-01-01T00:00:00Z"}}`, ``},
		{"a running sync of the hub", managedHub(), mirrorOfC, running, same, now, `{"operation":{"id":"c1","startedAt":"2031-01-01T00:00:00Z"}}`, ``},
		{"a sync that waits for the agent", managedHub(), byCommand, `{}`, same, now, `{"operation":{"id":"c1"}}`, ``},
		{"a time as browsers write it", managedHub(), byCommand, `{}`, same, "2026-06-01T12:00:00.123Z", `{"operation":{"id":"c1"}}`, ``},
		{"a sync without an ID", managedHub(), `{"sync":{}}`, `{}`, same, now, ``, ``},
		{"nothing", managedHub(), ``, `{}`, same, now, ``, ``},
		{"a deletion", managedHub(), ``, `{}`, deletes(now), now, `{"deletion":true}`, ``},
		{"before the deletion", managedHub(), ``, `{}`, deletes("2026-06-01T12:00:01Z"), now, ``, ``},
		{"a deletion without cascade", managedHub(), ``, `{}`, func(o *Object) *Object { return deletingAt(t, o, now, "x/y") }, now, ``, ``},
		{"a deletion by an autonomous spoke", autoHub(), ``, `{"conditions":[{"type":"AgentDeletingWarning","message":"m","lastTransitionTime":"2031-01-01T00:00:00Z"}]}`, ownedBySpoke, now, `{"deletedAt":"2031-01-01T00:00:00Z"}`, ``},
		{"a replica that a user of the hub deletes", autoHub(), ``, `{}`, func(o *Object) *Object { return ownedBySpoke(deletes(now)(o)) }, now, ``, ``},
		{"in the future", managedHub(), mirrored, running, same, "2026-06-01T12:06:00Z", ``, "is in the future"},
		{"in the near future, by a clock that is ahead", managedHub(), byCommand, `{}`, same, "2026-06-01T12:04:00Z", `{"operation":{"id":"c1"}}`, ``},
		{"old", managedHub(), mirrored, running, same, "2026-06-01T10:59:59Z", ``, "is older than an hour"},
		{"old, and nothing waits", managedHub(), ``, `{}`, same, "2020-06-01T10:59:59Z", ``, ``},
		{"not a time", managedHub(), mirrored, running, same, "true", ``, `"true" is not a time in the format of RFC 3339`},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := approve(c.change(hubApp(t, c.operation, c.status)), c.value)
			if sent := approvalSent(t, before, c.w); sent != "" {
				t.Errorf("sent before it is recorded: %s", sent)
			}
			after := RecordApproval(before, c.w, approvalNow)
			if again := RecordApproval(after, c.w, approvalNow.Add(24*time.Hour)); again != after {
				t.Errorf("recorded twice: %s", again.raw)
			}
			if sent := approvalSent(t, after, c.w); sent != c.sent {
				t.Errorf("sent %s, want %s", sent, c.sent)
			}
			if c.shown == "" && hasCondition(after, ConditionApproval, func(string) bool { return true }) ||
				c.shown != "" && !hasCondition(after, ConditionApproval, func(m string) bool { return strings.Contains(m, c.shown) && strings.Contains(m, ApprovalAnnotation) }) {
				t.Errorf("conditions %s, want %q", after.Get("status", "conditions"), c.shown)
			}
			if revoked := approve(after, ""); approvalSent(t, revoked, c.w) != "" {
				t.Error("sent although it is revoked")
			} else if clean := RecordApproval(revoked, c.w, approvalNow); clean.Annotation(ApprovalRecordAnnotation) != "" || hasCondition(clean, ConditionApproval, func(string) bool { return true }) {
				t.Errorf("a revoked approval leaves %s", clean.raw)
			}
		})
	}
}

// ownedBySpoke returns a hub's Application as the replica of an autonomous agent.
func ownedBySpoke(o *Object) *Object {
	for key, value := range map[string]string{SourceUID: "s", PrincipalUID: "hub-1", AgentNameAnnotation: "one"} {
		o = o.withAnnotation(key, value)
	}
	return o
}

// The spoke writes the start of exactly the operation or deletion that was approved, by its own clock.
func TestApproval_OnSpoke(t *testing.T) {
	const start, other = "2031-01-01T00:00:00Z", "2031-01-02T00:00:00Z"
	running := func(operation, phase string) string {
		return `{"operationState":{"phase":"` + phase + `","startedAt":"` + start + `","operation":` + operation + `}}`
	}
	forC := `{"approve":{"id":"i","operation":{"id":"c1"}}}`
	forStart := func(at string) string { return `{"approve":{"id":"i","operation":{"startedAt":"` + at + `"}}}` }
	for _, c := range []struct {
		name              string
		w                 *Env
		operation, status string
		deleted           string
		commands          string
		approved          string
		waits             bool
	}{
		{"a running command", managedSpoke(), byCommand, running(byCommand, "Running"), "", forC, start, false},
		{"of another start by the spoke", managedSpoke(), bySpoke, running(bySpoke, "Running"), "", forStart(other), "", false},
		{"of that start", managedSpoke(), bySpoke, running(bySpoke, "Running"), "", forStart(start), start, false},
		{"another command runs", managedSpoke(), bySpoke, running(bySpoke, "Running"), "", forC, "", false},
		{"a command runs at the start of a sync of the spoke", managedSpoke(), byCommand, running(byCommand, "Running"), "", forStart(start), "", false},
		{"it has ended", managedSpoke(), bySpoke, running(bySpoke, "Succeeded"), "", forStart(start), "", false},
		{"no operation", managedSpoke(), "", running(bySpoke, "Running"), "", forStart(start), "", false},
		{"it has not started", managedSpoke(), byCommand, `{}`, "", forC, "", true},
		{"it begins now", managedSpoke(), "", `{}`, "", `{"approve":{"id":"i","operation":{"id":"c1"}},"operation":` + byCommand + `}`, "", true},
		{"it waits for another", managedSpoke(), bySpoke, running(bySpoke, "Running"), "", `{"approve":{"id":"i","operation":{"id":"c1"}},"operation":` + byCommand + `}`, "", true},
		{"a deletion", managedSpoke(), "", `{}`, start, `{"approve":{"id":"i","deletion":true}}`, start, false},
		{"a deletion that has not arrived", managedSpoke(), "", `{}`, "", `{"approve":{"id":"i","deletion":true}}`, "", true},
		{"a deletion of any time on an autonomous spoke", autoSpoke(), "", `{}`, start, `{"approve":{"id":"i","deletion":true}}`, "", false},
		{"a deletion on an autonomous spoke", autoSpoke(), "", `{}`, start, `{"approve":{"id":"i","deletedAt":"` + start + `"}}`, start, false},
		{"another deletion on an autonomous spoke", autoSpoke(), "", `{}`, start, `{"approve":{"id":"i","deletedAt":"` + other + `"}}`, "", false},
		{"nothing", managedSpoke(), byCommand, running(byCommand, "Running"), "", `{"approve":{"id":"i"}}`, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := spokeApp(t, c.operation, c.status, "")
			if c.deleted != "" {
				o = deletingAt(t, o, c.deleted, cascadeFinalizer)
			}
			x, err := Execute(o, []byte(c.commands), c.w)
			if err != nil {
				t.Fatal(err)
			}
			if x.Waits != c.waits {
				t.Errorf("waits is %v: %s", x.Waits, x.Reason)
			}
			after := x.Object
			if after == nil {
				after = o
			}
			if got := after.Annotation(ApprovalAnnotation); got != c.approved {
				t.Errorf("approved %q, want %q", got, c.approved)
			}
			if done := readReceipt(after).approval == "i"; done == c.waits {
				t.Errorf("processed is %v", done)
			}
			if c.waits {
				return
			}
			// A user of the spoke can revoke it, and the command does not write it again.
			if x, err := Execute(approve(after, ""), []byte(c.commands), c.w); err != nil || x.Object != nil {
				t.Errorf("executed twice: %v", err)
			}
		})
	}
}

func TestApproval_HubHearsWhatBecameOfIt(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		hub, spoke := managedHub(), managedSpoke()
		if refuses {
			spoke.RefusesOperation = func(*Object, []byte) error { return errors.New("prune is not allowed here") }
		}
		state := `{"phase":"Running","startedAt":"2031-01-01T00:00:00Z","operation":` + bySpoke + `}`
		approved := RecordApproval(approve(hubApp(t, mirrored, `{"operationState":`+state+`}`), "2026-06-01T12:00:00Z"), hub, approvalNow)
		item, _ := CommandKind{}.Publish(approved, hub)
		x, err := Execute(spokeApp(t, bySpoke, `{"operationState":`+state+`}`, ""), item.Content, spoke)
		if err != nil || x.Object == nil {
			t.Fatalf("%v: %s", err, item.Content)
		}
		if got := x.Object.Annotation(ApprovalAnnotation) != ""; got == refuses {
			t.Errorf("refuses %v: approved is %v", refuses, got)
		}
		status, ok := StatusKind{}.Publish(x.Object, spoke)
		if !ok || !Urgent(x.Object, nil, status.Extra) {
			t.Fatalf("the receipt is not sent at once: %s", status.Extra)
		}
		for _, other := range []string{`{"approved":"other"}`, `{}`} {
			after, err := StatusKind{}.Merge(approved, status.Key, status.Content, []byte(other), Ownership{}, hub)
			if err != nil || pendingApproval(after).ID == "" {
				t.Errorf("%s ends the approval: %v", other, err)
			}
		}
		after, err := StatusKind{}.Merge(approved, status.Key, status.Content, status.Extra, Ownership{}, hub)
		if err != nil {
			t.Fatal(err)
		}
		if sent := approvalSent(t, after, hub); sent != "" || RecordApproval(after, hub, approvalNow) != after {
			t.Errorf("it is still pending: %s", sent)
		}
		if after.Annotation(ApprovalAnnotation) == "" {
			t.Error("the user's annotation is removed")
		}
		if shown := hasCondition(after, ConditionApproval, func(m string) bool { return strings.Contains(m, "prune is not allowed here") }); shown != refuses {
			t.Errorf("refuses %v: conditions %s", refuses, after.Get("status", "conditions"))
		}
	}
}

func TestApproval_EndsWithRejectedCommands(t *testing.T) {
	w := managedHub()
	approved := RecordApproval(approve(hubApp(t, byCommand, `{}`), "2026-06-01T12:00:00Z"), w, approvalNow)
	failed, ok := FailCommand(approved, "c1", "the Application is ignored there", approvalNow)
	if !ok || approvalSent(t, failed, w) != "" || !hasCondition(failed, ConditionApproval, func(m string) bool { return strings.Contains(m, "ignored there") }) {
		t.Errorf("%v: %s", ok, failed.raw)
	}
	if again := RecordApproval(failed, w, approvalNow); again != failed {
		t.Error("it becomes pending again")
	}
}

// Neither the approval nor its record crosses as an annotation: the clocks differ.
func TestApproval_AnnotationIsNotReplicated(t *testing.T) {
	plain := hubApp(t, "", `{}`)
	a, _ := ApplicationKind{}.Publish(plain, managedHub())
	b, _ := ApplicationKind{}.Publish(RecordApproval(approve(plain, "2026-06-01T12:00:00Z"), managedHub(), approvalNow), managedHub())
	if !bytes.Equal(a.Content, b.Content) {
		t.Errorf("%s and %s", a.Content, b.Content)
	}
	spoke := approve(spokeApp(t, "", "", ""), "2031-01-01T00:00:00Z")
	merged, err := ApplicationKind{}.Merge(spoke, a.Key, a.Content, nil, ReadOwnership(spoke, managedSpoke()), managedSpoke())
	if err != nil || merged.Annotation(ApprovalAnnotation) == "" {
		t.Errorf("a write of the hub's configuration removes the spoke's approval: %v", err)
	}
}

// An autonomous spoke reports that it deletes an Application. It cannot report anything else under that type.
func TestStatus_ReportsDeletionByAutonomousSpoke(t *testing.T) {
	const at = "2031-01-01T00:00:00Z"
	spoke := deletingAt(t, object(t, `{"metadata":{"name":"a","namespace":"argo","uid":"s"},"spec":{"project":"p"},"status":{"health":{}}}`), at, cascadeFinalizer)
	item, ok := StatusKind{}.Publish(spoke, autoSpoke())
	if !ok {
		t.Fatal("not published")
	}
	local := ownedBySpoke(hubApp(t, "", `{"conditions":[{"type":"AgentError","message":"kept"}]}`))
	merged, err := StatusKind{}.Merge(local, engine.Key{Name: "a"}, item.Content, item.Extra, Ownership{}, autoHub())
	if err != nil {
		t.Fatal(err)
	}
	if deletedAt(merged) != at || !hasCondition(merged, ConditionError, func(m string) bool { return m == "kept" }) {
		t.Errorf("conditions %s", merged.Get("status", "conditions"))
	}
	if held, ok := (StatusKind{}).ReadReplica(merged, autoHub()); !ok || !bytes.Equal(held.Content, item.Content) {
		t.Errorf("read as %s, sent as %s", held.Content, item.Content)
	}
	for _, forged := range []string{
		`{"type":"AgentDeletingWarning","message":"pay here","lastTransitionTime":"` + at + `"}`,
		`{"type":"AgentDeletingWarning","message":"m","lastTransitionTime":"soon"}`,
		`{"type":"AgentFieldsDroppedWarning","message":"m"}`,
	} {
		merged, err := StatusKind{}.Merge(local, engine.Key{Name: "a"}, []byte(`{"status":{"conditions":[`+forged+`]}}`), nil, Ownership{}, autoHub())
		if err != nil || strings.Contains(string(merged.raw), "pay here") || deletedAt(merged) == "soon" || strings.Contains(string(merged.raw), ConditionDropped) {
			t.Errorf("%s: %v %s", forged, err, merged.raw)
		}
	}
	alive, _ := StatusKind{}.Publish(object(t, `{"metadata":{"name":"a","namespace":"argo","uid":"s"},"spec":{"project":"p"},"status":{"health":{}}}`), autoSpoke())
	if after, err := (StatusKind{}).Merge(merged, engine.Key{Name: "a"}, alive.Content, nil, Ownership{}, autoHub()); err != nil || deletedAt(after) != "" {
		t.Errorf("the condition stays: %v", err)
	}
}
