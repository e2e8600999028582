package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// auditorOf returns an Auditor and a function that returns its lines in short form, once.
func auditorOf(t *testing.T, side audit.Side) (*Auditor, func() []string) {
	t.Helper()
	var out bytes.Buffer
	log, err := audit.Open(t.Context(), audit.Config{Target: "-", Stdout: &out, Side: side, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return New(log, side), func() (lines []string) {
		log.Close()
		for line := range strings.Lines(out.String()) {
			var r audit.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			o := r.Object
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s by %s: %s/%s/%s %s %s %s (%s)", r.Agent, r.Type, r.Action, r.Caller, o.Resource, o.Namespace, o.Name, r.RequestID, r.Result, r.Code, r.Reason)))
		}
		return lines
	}
}

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func commandOf(seq uint64, name, content string) engine.Delta {
	return engine.Delta{Scope: kind.CommandScope, Items: []engine.DeltaItem{{Seq: seq, Key: engine.Key{Namespace: "argocd", Name: name}, Content: []byte(content)}}}
}

func ack(scope string, seq uint64, name string, code engine.Code, message string) engine.Ack {
	return engine.Ack{Scope: scope, Items: []engine.AckItem{{Seq: seq, Key: engine.Key{Namespace: "argocd", Name: name}, Code: code, Message: message}}}
}

const (
	syncOf   = `{"operation":{"sync":{"revision":"x"},"initiatedBy":{"username":"alice"},"info":[{"name":"argocd-agent/command","value":"c1"}]},"uid":"u"}`
	rollback = `{"operation":{"sync":{"source":{"repoURL":"secret"}},"info":[{"name":"argocd-agent/command","value":"c2"}]}}`
)

func TestAuditor_OneLinePerCommand(t *testing.T) {
	for _, side := range []audit.Side{audit.Hub, audit.Spoke} {
		a, lines := auditorOf(t, side)
		for i, content := range []string{syncOf, rollback, `{"refresh":"hard","hydrate":"normal","nonce":"n1"}`, `{"terminate":{"startedAt":"2026-01-01T00:00:00Z"}}`} {
			a.Items("w1", 1, commandOf(uint64(i+1), "web", content))
			a.Answers("w1", 1, ack(kind.CommandScope, uint64(i+1), "web", engine.OK, ""))
			a.Answers("w1", 1, ack(kind.CommandScope, uint64(i+1), "web", engine.OK, "")) // a duplicate
		}
		a.Closed("w1", 1)
		wants(t, lines(),
			"w1 command sync by alice: applications/argocd/web c1 ok  ()",
			"w1 command rollback by unknown: applications/argocd/web c2 ok  ()",
			"w1 command refresh by unknown: applications/argocd/web n1 ok  ()",
			"w1 command hydrate by unknown: applications/argocd/web n1 ok  ()",
			"w1 command terminate by unknown: applications/argocd/web 2026-01-01T00:00:00Z ok  ()")
	}
}

func TestAuditor_WaitingCommandHasOneLine(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	for seq := range uint64(5) { // another operation runs
		a.Items("w1", 1, commandOf(seq+1, "web", syncOf))
		a.Answers("w1", 1, ack(kind.CommandScope, seq+1, "web", engine.Busy, "another operation is running"))
	}
	a.Items("w1", 1, commandOf(6, "web", syncOf))
	a.Items("w1", 1, commandOf(7, "web", syncOf)) // sent again before the answer
	a.Answers("w1", 1, ack(kind.CommandScope, 7, "web", engine.OK, ""))
	wants(t, lines(), "w1 command sync by alice: applications/argocd/web c1 ok  ()")
}

func TestAuditor_RefusedCommand(t *testing.T) {
	a, lines := auditorOf(t, audit.Spoke)
	a.Items("", 1, commandOf(1, "web", syncOf))
	a.Answers("", 1, ack(kind.CommandScope, 1, "web", engine.NotAllowed, "the AgentPolicy forbids it"))
	a.Items("", 1, commandOf(2, "web", rollback))
	a.Answers("", 1, ack(kind.CommandScope, 2, "web", engine.NotAllowed, "the AgentPolicy forbids it"))
	wants(t, lines(), "command sync by alice: applications/argocd/web c1 refused NotAllowed (the AgentPolicy forbids it)",
		"command rollback by unknown: applications/argocd/web c2 refused NotAllowed (the AgentPolicy forbids it)")
}

func TestAuditor_SessionEndsBeforeAnswer(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	a.Items("w1", 1, commandOf(1, "web", syncOf))
	a.Items("w2", 2, commandOf(1, "web", rollback))
	a.Closed("w1", 1)
	a.Answers("w1", 1, ack(kind.CommandScope, 1, "web", engine.OK, "")) // late
	a.Answers("w2", 2, ack(kind.CommandScope, 1, "web", engine.OK, ""))
	wants(t, lines(), "w1 command sync by alice: applications/argocd/web c1 unknown  (the session ended before the result was known)",
		"w2 command rollback by unknown: applications/argocd/web c2 ok  ()")
}

func TestAuditor_ReplacedCommand(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	a.Items("w1", 1, commandOf(1, "web", syncOf))
	a.Items("w1", 1, commandOf(2, "web", rollback))
	a.Answers("w1", 1, ack(kind.CommandScope, 2, "web", engine.OK, ""))
	wants(t, lines(), "w1 command sync by alice: applications/argocd/web c1 unknown  (replaced by a later command)",
		"w1 command rollback by unknown: applications/argocd/web c2 ok  ()")
}

func TestAuditor_Deletions(t *testing.T) {
	items := func(d engine.DeltaItem) engine.Delta {
		d.Key = engine.Key{Namespace: "argocd", Name: "web"}
		return engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Seq: d.Seq, Key: d.Key, Gone: d.Gone, DeletedUID: d.DeletedUID, Content: d.Content}}}
	}
	send := func(a *Auditor) {
		for i, d := range []engine.DeltaItem{{Content: []byte(`{"deleting":true,"uid":"u1"}`)}, {Gone: true, DeletedUID: "u1"}, {Gone: true}, {Content: []byte(`{"uid":"u2","spec":{}}`)}} {
			d.Seq = uint64(i + 1)
			a.Items("", 1, items(d))
			a.Answers("", 1, ack(kind.ApplicationScope, d.Seq, "web", engine.OK, ""))
		}
	}
	a, lines := auditorOf(t, audit.Hub)
	send(a)
	wants(t, lines(), "command delete by unknown: applications/argocd/web u1 ok  (with its resources)",
		"command delete by unknown: applications/argocd/web  ok  ()", "command remove by unknown: applications/argocd/web  ok  ()")

	// A spoke writes the line when it deletes, also if no message named the object.
	a, lines = auditorOf(t, audit.Spoke)
	send(a)
	o, err := kind.Parse([]byte(`{"metadata":{"name":"web","namespace":"argocd","finalizers":["resources-finalizer.argocd.argoproj.io"],"annotations":{"` + kind.SourceUID + `":"u1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	w := reconcile.Write{Verb: reconcile.Delete, Ref: kind.Ref{Resource: kind.Applications, Namespace: "argocd", Name: "web"}, Object: o}
	a.Deleted(w, &reconcile.Failure{Stale: true}) // is repeated
	a.Deleted(w, &reconcile.Failure{Code: engine.Forbidden, Message: "no"})
	a.Deleted(w, nil)
	a.Items("", 1, items(engine.DeltaItem{Seq: 9, Gone: true, DeletedUID: "u1"}))
	for range 3 { // is retried
		a.Answers("", 1, ack(kind.ApplicationScope, 9, "web", engine.OnHold, "the budget"))
	}
	a.Items("", 1, items(engine.DeltaItem{Seq: 10, Gone: true, DeletedUID: "u1"}))
	a.Closed("", 1)
	wants(t, lines(), "command delete by unknown: applications/argocd/web u1 failed Forbidden (no)",
		"command delete by unknown: applications/argocd/web u1 ok  (with its resources)",
		"command delete by unknown: applications/argocd/web  refused Held (the budget)")
}

func TestAuditor_RefusedObjectIsReportedOnce(t *testing.T) {
	a, lines := auditorOf(t, audit.Spoke)
	for range 3 {
		a.Answers("", 1, ack(kind.AppProjectScope, 1, "p", engine.NotAllowed, "the AgentPolicy forbids it"))
		a.Answers("", 1, ack(kind.RepositoryScope, 1, "r", engine.Unavailable, "no API server"))
	}
	a.Answers("", 1, ack(kind.AppProjectScope, 2, "p", engine.OK, ""))
	a.Answers("", 1, ack(kind.AppProjectScope, 3, "p", engine.NotAllowed, "the AgentPolicy forbids it"))
	wants(t, lines(), "replication apply by unknown: appprojects/argocd/p  refused NotAllowed (the AgentPolicy forbids it)",
		"replication apply by unknown: appprojects/argocd/p  refused NotAllowed (the AgentPolicy forbids it)")
}

func TestAuditor_Confirmations(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	for _, id := range []string{"h1", "h1", "h2"} { // repeated in each session
		a.Confirmed("w1", kind.ApplicationScope, id)
	}
	wants(t, lines(), "w1 confirmation confirm by unknown: applications// h1 ok  ()", "w1 confirmation confirm by unknown: applications// h2 ok  ()")
}

func TestAuditor_CommandsWithoutAnswerAreBounded(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	for i := range maxWaiting + 2 {
		a.Items("w1", 1, commandOf(uint64(i+1), fmt.Sprint("app", i), syncOf))
	}
	if of := a.known("w1"); of.count != maxWaiting || len(of.waiting) != maxWaiting {
		t.Errorf("%d commands, %d keys", of.count, len(of.waiting))
	}
	a.Items("w2", 2, commandOf(1, "web", rollback)) // another agent is not affected
	a.Answers("w2", 2, ack(kind.CommandScope, 1, "web", engine.OK, ""))
	for i := range maxWaiting {
		a.Answers("w1", 1, ack(kind.CommandScope, uint64(i+1), fmt.Sprint("app", i), engine.Busy, ""))
	}
	if of := a.known("w1"); of.count != 0 || len(of.waiting) != 0 {
		t.Errorf("%d commands, %d keys", of.count, len(of.waiting))
	}
	if got := lines(); len(got) != 3 || !strings.Contains(got[0], "app1024 c1 unknown") || !strings.Contains(got[2], "w2 command rollback by unknown: applications/argocd/web c2 ok") {
		t.Errorf("%q", got)
	}
}

func TestNilAuditor_DoesNothing(t *testing.T) {
	a := New(nil, audit.Hub)
	a.Items("w1", 1, commandOf(1, "web", syncOf))
	a.Answers("w1", 1, ack(kind.CommandScope, 1, "web", engine.OK, ""))
	a.Confirmed("w1", "", "x")
	a.Deleted(reconcile.Write{}, nil)
	a.Rejected("w1", kind.ApplicationScope, engine.Key{}, engine.NotAllowed, "")
	a.Accepted("w1", kind.ApplicationScope, engine.Key{})
	a.Closed("w1", 1)
	a.Forget("w1")
}

// An agent can send acknowledgements of any key, in any number.
func TestAuditor_AnswerOfItemThatWasNotSentHasNoLine(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	a.Items("w1", 1, commandOf(5, "web", syncOf))
	a.Items("w2", 2, commandOf(1, "web", rollback))
	for seq := range uint64(4) {
		for _, scope := range []string{kind.ApplicationScope, kind.AppProjectScope, kind.CommandScope} {
			a.Answers("w1", 1, ack(scope, seq, "web", engine.NotAllowed, fmt.Sprint(seq)))
			a.Answers("w1", 1, ack(scope, seq, fmt.Sprint("app", seq), engine.NotAllowed, "no"))
			a.Answers("w3", 3, ack(scope, seq, "web", engine.NotAllowed, "no"))
		}
	}
	a.Answers("w1", 1, ack(kind.CommandScope, 99, "web", engine.OK, "")) // a number that was not sent
	a.Answers("w1", 2, ack(kind.CommandScope, 1, "web", engine.OK, ""))  // the session of another agent
	if len(a.agents) != 2 {
		t.Errorf("state of %d agents", len(a.agents))
	}
	a.Answers("w1", 1, ack(kind.CommandScope, 5, "web", engine.OK, ""))
	a.Answers("w2", 2, ack(kind.CommandScope, 1, "web", engine.OK, ""))
	wants(t, lines(), "w1 command sync by alice: applications/argocd/web c1 ok  ()", "w2 command rollback by unknown: applications/argocd/web c2 ok  ()")
}

func TestAuditor_RejectedObjectOfHubIsReportedOnce(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	key := engine.Key{Namespace: "argocd", Name: "p"}
	for range 3 { // in each session
		a.Rejected("w1", kind.AppProjectScope, key, engine.NotAllowed, "the AgentPolicy forbids it")
		a.Rejected("w1", kind.RepositoryScope, key, engine.Unavailable, "no API server")
		a.Rejected("w1", kind.CommandScope, key, engine.NotAllowed, "has the line of the command")
	}
	a.Accepted("w1", kind.AppProjectScope, key)
	a.Rejected("w1", kind.AppProjectScope, key, engine.NotAllowed, "the AgentPolicy forbids it")
	// A removal has the line of its command.
	a.Items("w1", 1, engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Seq: 1, Key: key, Gone: true}}})
	a.Answers("w1", 1, ack(kind.ApplicationScope, 1, "p", engine.OnHold, "the budget"))
	a.Rejected("w1", kind.ApplicationScope, key, engine.OnHold, "the budget")
	wants(t, lines(), "w1 replication apply by unknown: appprojects/argocd/p  refused NotAllowed (the AgentPolicy forbids it)",
		"w1 replication apply by unknown: appprojects/argocd/p  refused NotAllowed (the AgentPolicy forbids it)",
		"w1 command remove by unknown: applications/argocd/p  refused Held (the budget)")
}

// A refresh is sent again in each session until the workload cluster has finished it.
func TestAuditor_CommandThatIsSentAgainHasOneLine(t *testing.T) {
	const refresh, later = `{"refresh":"hard","nonce":"n1"}`, `{"refresh":"hard","nonce":"n2"}`
	for _, side := range []audit.Side{audit.Hub, audit.Spoke} {
		a, lines := auditorOf(t, side)
		for session := range uint64(3) {
			a.Items("w1", session, commandOf(1, "web", refresh))
			if session > 0 {
				a.Answers("w1", session, ack(kind.CommandScope, 1, "web", engine.OK, ""))
			}
			a.Closed("w1", session)
		}
		a.Items("w1", 3, commandOf(1, "web", refresh))
		a.Closed("w1", 3) // it was executed before
		a.Items("w1", 4, commandOf(1, "web", later))
		a.Answers("w1", 4, ack(kind.CommandScope, 1, "web", engine.NotAllowed, "no"))
		a.Items("w1", 4, commandOf(2, "web", later))
		a.Answers("w1", 4, ack(kind.CommandScope, 2, "web", engine.NotAllowed, "no"))
		a.Items("w1", 4, commandOf(3, "web", later))
		a.Answers("w1", 4, ack(kind.CommandScope, 3, "web", engine.OK, ""))
		wants(t, lines(), "w1 command refresh by unknown: applications/argocd/web n1 unknown  (the session ended before the result was known)",
			"w1 command refresh by unknown: applications/argocd/web n1 ok  ()",
			"w1 command refresh by unknown: applications/argocd/web n2 refused NotAllowed (no)",
			"w1 command refresh by unknown: applications/argocd/web n2 ok  ()")
	}
}

func TestAuditor_ForgetsAgent(t *testing.T) {
	a, lines := auditorOf(t, audit.Hub)
	a.Items("w1", 1, commandOf(1, "web", syncOf))
	a.Forget("w1")
	if len(a.agents) != 0 {
		t.Errorf("%d agents", len(a.agents))
	}
	a.Closed("w1", 1)
	a.Answers("w1", 1, ack(kind.CommandScope, 1, "web", engine.OK, ""))
	wants(t, lines(), "w1 command sync by alice: applications/argocd/web c1 unknown  (the agent was unregistered before the result was known)")
}
