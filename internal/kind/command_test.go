package kind

import (
	"fmt"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func TestPendingCommands_OnHub(t *testing.T) {
	const state = `{"operationState":{"phase":"Running","startedAt":"2026-01-01T00:00:00Z","operation":` + byCommand + `}}`
	for _, c := range []struct {
		name              string
		operation, status string
		annotations       string
		want              string // what is sent, if anything
		unstamped         bool
	}{
		{"nothing", ``, `{}`, `{}`, ``, false},
		{"a sync that has just been clicked", `{"sync":{}}`, `{}`, `{}`, ``, true},
		{"a sync with its ID", byCommand, `{}`, `{}`, `{"operation":` + byCommand + `}`, false},
		{"a sync that runs", byCommand, state, `{}`, ``, false},
		{"a mirror", mirrored, `{}`, `{}`, ``, false},
		{"a mirror of a command", mirrorOfC, `{}`, `{}`, ``, false},
		{"a refresh", ``, `{}`, `{"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/hydrate":"normal"}`, `{"refresh":"hard","nonce":"n"}`, false},
		{
			"a terminate of a command", mirrorOfC, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":` + byCommand + `}}`, `{}`,
			`{"terminate":{"id":"c1","startedAt":"2026-01-01T00:00:00Z"}}`, false,
		},
		{
			"a terminate of the spoke's own, whose state has the ID of an earlier one", mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":` + byCommand + `}}`, `{}`,
			`{"terminate":{"startedAt":"2026-01-01T00:00:00Z"}}`, false,
		},
		{
			"a terminate of the spoke's own", mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":` + bySpoke + `}}`, `{}`,
			`{"terminate":{"startedAt":"2026-01-01T00:00:00Z"}}`, false,
		},
	} {
		w := managedHub()
		w.RefreshNonce = func(engine.Key) string { return "n" }
		o := hubApp(t, c.operation, c.status)
		d := edit(o)
		d.meta.Set("annotations", []byte(c.annotations))
		o, _ = d.done()
		commands, _ := Pending(o, w)
		if commands.MissingID != c.unstamped {
			t.Errorf("%s: unstamped is %v", c.name, commands.MissingID)
		}
		item, ok := CommandKind{}.Publish(o, w)
		if ok != (c.want != "") {
			t.Errorf("%s: published %v: %s", c.name, ok, item.Content)
		} else if ok {
			content, _ := rawjson.Remove(item.Content, "uid")
			expectJSON(t, c.name, content, c.want)
			if uid := rawjson.Text(item.Content, "uid"); uid != o.UID() {
				t.Errorf("%s: for %q", c.name, uid)
			}
		}
	}
}

func TestCommand_WaitsWhileAnotherApplicationHasTheName(t *testing.T) {
	for _, w := range []*Env{managedSpoke(), newEnv(Spoke, Autonomous, ByNamespace)} {
		spoke := spokeApp(t, ``, ``, ``)
		is := spoke.UID()
		if w.Agent.Mode == Managed {
			is = ReadOwnership(spoke, w).Source
		}
		for _, uid := range []string{is, "another"} {
			x, err := Execute(spoke, []byte(`{"operation":`+byCommand+`,"uid":"`+uid+`"}`), w)
			if waits := err != nil; waits != (uid == "another") || !waits && x.Object == nil {
				t.Errorf("%s, for %s: %v", w.Agent.Mode, uid, err)
			}
		}
	}
}

func TestSetCommandID_KeepsOperationOfUser(t *testing.T) {
	stamped, err := SetCommandID(hubApp(t, `{"sync":{"prune":true},"info":[{"name":"Reason","value":"because"}]}`, `{}`), "c1")
	if err != nil {
		t.Fatal(err)
	}
	expectJSON(t, "stamped", stamped.Get("operation"), `{"sync":{"prune":true},"info":[{"name":"Reason","value":"because"},{"name":"argocd-agent/command","value":"c1"}]}`)
	if _, err := SetCommandID(hubApp(t, "", `{}`), "c1"); err == nil {
		t.Error("stamped nothing")
	}
}

// spokeApp is a managed spoke's copy.
func spokeApp(t *testing.T, operation, status string, done string) *Object {
	t.Helper()
	o := object(t, `{"metadata":{"name":"a","namespace":"argo",`+marked+`},"spec":{"project":"p"}}`)
	d := edit(o)
	if operation != "" {
		d.top.Set("operation", []byte(operation))
	}
	if status != "" {
		d.top.Set("status", []byte(status))
	}
	if done != "" {
		annotations := members(o.annotations)
		annotations.Set(ReceiptAnnotation, rawjson.Quote(done))
		setList(&d.meta, "annotations", annotations)
	}
	o, err := d.done()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestExecute_OnSpoke(t *testing.T) {
	const started = `"startedAt":"2026-01-01T00:00:00Z"`
	running := func(operation string) string {
		return `{"health":{},"operationState":{"phase":"Running",` + started + `,"operation":` + operation + `}}`
	}
	sync := `{"operation":` + byCommand + `}`
	terminateC := `{"terminate":{"id":"c1",` + started + `}}`
	terminateS := `{"terminate":{` + started + `}}`
	for _, c := range []struct {
		name                    string
		operation, status, done string
		commands                string
		operationAfter, status2 string // empty: unchanged
		doneAfter               string
		waits                   bool
	}{
		{"a sync starts, and the last one's state goes", ``, `{"health":{},"operationState":{"phase":"Succeeded"}}`, ``, sync, byCommand, `{"health":{}}`, `{"ids":["c1"]}`, false},
		{"a sync starts on an Application without a status", ``, ``, ``, sync, byCommand, `-`, `{"ids":["c1"]}`, false},
		{"a sync that is set already", byCommand, `{}`, ``, sync, ``, ``, ``, false},
		{"a sync that is running", byCommand, running(byCommand), ``, sync, ``, ``, ``, false},
		{"a sync that is over", ``, `{"operationState":{"phase":"Failed","operation":` + byCommand + `}}`, ``, sync, ``, ``, ``, false},
		{"a sync that is over, with another one since", bySpoke, running(bySpoke), `{"ids":["c1"]}`, sync, ``, ``, ``, false},
		{"a sync while another operation runs", bySpoke, running(bySpoke), `{"ids":["c0"]}`, sync, ``, ``, ``, true},
		{"terminate hits its target", byCommand, running(byCommand), ``, terminateC, byCommand, `{"health":{},"operationState":{"phase":"Terminating",` + started + `,"operation":` + byCommand + `}}`, ``, false},
		{"terminate by start", bySpoke, running(bySpoke), ``, terminateS, bySpoke, `{"health":{},"operationState":{"phase":"Terminating",` + started + `,"operation":` + bySpoke + `}}`, ``, false},
		{"terminate does not hit another command", bySpoke, running(bySpoke), ``, terminateC, ``, ``, ``, false},
		{"terminate does not hit another whose state has the old one's ID", bySpoke, running(byCommand), ``, terminateC, ``, ``, ``, false},
		{"terminate of the spoke's own does not hit a command that started in the same second", byCommand, running(byCommand), ``, terminateS, ``, ``, ``, false},
		{"terminate does not hit a later start", bySpoke, `{"operationState":{"phase":"Running","startedAt":"2026-01-01T09:00:00Z"}}`, ``, terminateS, ``, ``, ``, false},
		{"terminate of what is over", ``, `{"operationState":{"phase":"Succeeded",` + started + `}}`, ``, terminateS, ``, ``, ``, false},
		{"terminate twice", bySpoke, `{"operationState":{"phase":"Terminating",` + started + `}}`, ``, terminateS, ``, ``, ``, false},
		{"terminate of what has not started", byCommand, `{}`, ``, terminateC, ``, ``, ``, true},
		{"a refresh that was done", ``, `{}`, `{"refresh":"n"}`, `{"refresh":"hard","nonce":"n"}`, ``, ``, ``, false},
	} {
		before := spokeApp(t, c.operation, c.status, c.done)
		x, err := Execute(before, []byte(c.commands), managedSpoke())
		if err != nil || x.Refused != nil {
			t.Errorf("%s: %v, %v", c.name, err, x.Refused)
			continue
		}
		if x.Waits != c.waits {
			t.Errorf("%s: waits is %v (%s)", c.name, x.Waits, x.Reason)
		}
		if c.status2 == "" {
			if x.Object != nil {
				t.Errorf("%s: writes %s", c.name, x.Object.Raw())
			}
			continue
		}
		if x.Object == nil {
			t.Errorf("%s: writes nothing", c.name)
			continue
		}
		if c.status2 == "-" {
			c.status2 = ""
		}
		expectJSON(t, c.name, x.Object.Raw(), string(spokeApp(t, c.operationAfter, c.status2, c.doneAfter).Raw()))
		if again, err := Execute(x.Object, []byte(c.commands), managedSpoke()); err != nil || again.Object != nil {
			t.Errorf("%s: a second time it writes %v (%v)", c.name, again.Object, err)
		}
	}
}

func TestExecute_Refresh(t *testing.T) {
	w := managedSpoke()
	x, err := Execute(spokeApp(t, ``, ``, ``), []byte(`{"refresh":"normal","hydrate":"normal","nonce":"n1"}`), w)
	if err != nil || x.Object == nil || x.Object.Annotation(RefreshAnnotation) != "normal" || x.Object.Annotation(HydrateAnnotation) != "" {
		t.Fatalf("not refreshed, or to be hydrated without a source hydrator: %+v, %v", x, err)
	}
	item, _ := StatusKind{}.Publish(x.Object, w)
	expectJSON(t, "while it is pending", item.Extra, `{}`)

	// Argo CD's controller removes the annotation in the write of the status.
	d := edit(x.Object)
	annotations := members(x.Object.annotations)
	annotations.Remove(RefreshAnnotation)
	setList(&d.meta, "annotations", annotations)
	refreshed, _ := d.done()
	item, _ = StatusKind{}.Publish(refreshed, w)
	expectJSON(t, "when it is done", item.Extra, `{"refreshed":"n1"}`)

	hard := spokeApp(t, ``, ``, ``)
	d = edit(hard)
	annotations = members(hard.annotations)
	annotations.Set(RefreshAnnotation, []byte(`"hard"`))
	setList(&d.meta, "annotations", annotations)
	hard, _ = d.done()
	x, _ = Execute(hard, []byte(`{"refresh":"normal","nonce":"n2"}`), w)
	if x.Object.Annotation(RefreshAnnotation) != "hard" {
		t.Error("a hard refresh became a normal one")
	}
}

func TestExecute_RejectsCommands(t *testing.T) {
	sync := []byte(`{"operation":` + byCommand + `}`)
	deleting := object(t, `{"metadata":{"name":"a","namespace":"argo","deletionTimestamp":"2026-01-01T00:00:00Z",`+marked+`}}`)
	x, err := Execute(deleting, sync, managedSpoke())
	if err != nil || x.Refused == nil || x.Refused.Code != engine.Invalid || x.Object != nil {
		t.Errorf("deleting: %+v, %v", x, err)
	}
	x, err = Execute(spokeApp(t, ``, ``, ``), []byte(`{"operation":{"sync":{}}}`), managedSpoke())
	if err != nil || x.Refused == nil || x.Object != nil {
		t.Errorf("without an ID: %+v, %v", x, err)
	}
	_, err = Execute(object(t, `{"metadata":{"name":"a","namespace":"argo"}}`), sync, managedSpoke())
	expectRejected(t, "not ours yet", err, engine.Busy)
	_, err = Execute(object(t, `{"metadata":{"name":"a","namespace":"argo","labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}}}`), sync, autoSpoke())
	expectRejected(t, "ignore-sync", err, engine.NotAllowed)
	_, err = CommandKind{}.Merge(spokeApp(t, bySpoke, `{}`, ``), named("a"), sync, nil, Ownership{}, managedSpoke())
	expectRejected(t, "busy", err, engine.Busy)
	_, err = CommandKind{}.Merge(nil, named("a"), sync, nil, Ownership{}, managedSpoke())
	expectRejected(t, "nothing there", err, engine.NoObject)
	_, err = CommandKind{}.Merge(nil, named("a"), sync, nil, Ownership{}, managedHub())
	expectRejected(t, "on the hub", err, engine.WrongMode)
}

func TestRejectedCommand_EndsOnHubAndStaysVisible(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	hub, ok := FailCommand(hubApp(t, byCommand, `{"health":{}}`), "c1", "the Application is being deleted", now)
	if !ok {
		t.Fatal("not refused")
	}
	state := hub.Get("status", "operationState")
	if hub.Get("operation") != nil || rawjson.Text(state, "phase") != "Error" || rawjson.Text(state, "message") != "the Application is being deleted" ||
		rawjson.Text(state, "startedAt") != "2026-01-01T12:00:00Z" || infoValue(rawjson.Get(state, "operation"), CommandInfo) != "c1" {
		t.Errorf("refused: %s", hub.Raw())
	}
	if c, pending := Pending(hub, managedHub()); pending {
		t.Errorf("still pending: %+v", c)
	}
	if _, ok := FailCommand(hubApp(t, byCommand, `{}`), "c9", "x", now); ok {
		t.Error("another command was refused")
	}
	if _, ok := FailCommand(hubApp(t, `{"sync":{}}`, `{}`), "", "x", now); ok {
		t.Error("a command without an ID was refused")
	}
	waiting := object(t, `{"metadata":{"name":"a","annotations":{"argocd.argoproj.io/refresh":"hard","keep":"me"}},"operation":`+byCommand+`}`)
	if o, ok := FailCommand(waiting, "", "x", now); !ok || RefreshPending(o) || o.Annotation("keep") != "me" || o.Get("operation") == nil {
		t.Errorf("the refresh is still pending: %s", o.Raw())
	}
	if _, ok := FailCommand(hubApp(t, mirrorOfC, `{}`), "c1", "x", now); ok {
		t.Error("an operation that runs was refused")
	}
}

// A refusal stands until the spoke runs another operation, whatever the two
// clusters' clocks say.
func TestRejectedCommand_StaysUntilNextOperation(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	state := func(startedAt, id string) string {
		return `{"status":{"operationState":{"phase":"Succeeded","startedAt":"` + startedAt + `","operation":{"info":[{"name":"argocd-agent/command","value":"` + id + `"}]}}}}`
	}
	const none = `{"status":{"health":{}}}`
	before, after := state("2026-01-01T11:00:00Z", "c0"), state("2026-01-01T13:00:00Z", "c0")
	for _, c := range []struct {
		name     string
		statuses []string
		extra    string
		stands   bool
	}{
		{"no operation", []string{none, none}, ``, true},
		{"the one before", []string{before, before}, ``, true},
		{"the one before, by a clock that is ahead", []string{after, after}, ``, true},
		{"another", []string{before, after}, ``, false},
		{"another, by a clock that is behind", []string{after, before}, ``, false},
		{"the first one", []string{none, before}, ``, false},
		{"none any longer", []string{before, none}, ``, true},
		{"one that runs", []string{`{"operation":{"sync":{}},"status":{"operationState":{"phase":"Running","startedAt":"2026-01-01T11:00:00Z"}}}`}, ``, false},
		{"the same command, taken up after all", []string{state("2026-01-01T11:00:00Z", "c1")}, ``, false},
		{"the same command, by its receipt", []string{before}, `{"lastCommands":["c1"]}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub, _ := FailCommand(hubApp(t, byCommand, `{"health":{}}`), "c1", "the Application is being deleted", now)
			for _, status := range c.statuses {
				for range 2 { // it may come twice
					var err error
					if hub, err = (StatusKind{}).Merge(hub, named("a"), []byte(status), []byte(c.extra), Ownership{}, managedHub()); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := hub.Get("status", "operationState")
			if stands := rawjson.Text(got, "message") == "the Application is being deleted" && rawjson.Text(got, "phase") == "Error"; stands != c.stands {
				t.Errorf("the refusal stands: %v; the hub has %s", stands, got)
			}
		})
	}
}

func TestReceipt_HistoryIsBounded(t *testing.T) {
	o := spokeApp(t, ``, ``, ``)
	for i := range 20 {
		operation := fmt.Sprintf(`{"operation":{"info":[{"name":"argocd-agent/command","value":"c%d"}]}}`, i)
		x, err := Execute(o, []byte(operation), managedSpoke())
		if err != nil || x.Object == nil {
			t.Fatalf("command %d: %v", i, err)
		}
		d := edit(x.Object)
		d.top.Remove("operation") // it completes
		o, _ = d.done()
	}
	if ids := readReceipt(o).ids; len(ids) != receiptHistory || ids[receiptHistory-1] != "c19" {
		t.Errorf("history is %v", ids)
	}
}

func TestExecute_MapsNamesOfChildApplications(t *testing.T) {
	w := autoSpoke()
	w.Settings.AllowedNamespaces = []string{"team"}
	o := object(t, `{"metadata":{"name":"parent","namespace":"argo"},"status":{"resources":[
		{"group":"argoproj.io","kind":"Application","namespace":"argo","name":"child"},
		{"group":"argoproj.io","kind":"Application","namespace":"team","name":"other"}]}}`)
	x, err := Execute(o, []byte(`{"operation":{"info":[{"name":"argocd-agent/command","value":"c1"}],"sync":{"resources":[
		{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"child"},
		{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"team.other"},
		{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"unknown"},
		{"kind":"ConfigMap","namespace":"one-ns","name":"child"}]}}}`), w)
	if err != nil {
		t.Fatal(err)
	}
	expectJSON(t, "resources", x.Object.Get("operation", "sync", "resources"), `[
		{"group":"argoproj.io","kind":"Application","namespace":"argo","name":"child"},
		{"group":"argoproj.io","kind":"Application","namespace":"team","name":"other"},
		{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"unknown"},
		{"kind":"ConfigMap","namespace":"one-ns","name":"child"}]`)
}

// A command's whole life: clicked on the hub, carried out on the spoke, seen
// through on the hub, and carried out once however often it is delivered.
func TestCommand_LifeOfSync(t *testing.T) {
	hubWorld, spokeWorld := managedHub(), managedSpoke()
	hub := hubApp(t, `{"sync":{}}`, `{"health":{}}`)
	spoke := spokeApp(t, ``, `{"health":{},"operationState":{"phase":"Succeeded","startedAt":"2025-01-01T00:00:00Z","operation":{"sync":{}}}}`, ``)
	report := func() {
		t.Helper()
		item, ok := StatusKind{}.Publish(spoke, spokeWorld)
		if !ok {
			t.Fatal("no status")
		}
		var err error
		if hub, err = (StatusKind{}).Merge(hub, item.Key, item.Content, item.Extra, Ownership{}, hubWorld); err != nil {
			t.Fatal(err)
		}
	}
	deliver := func() bool {
		t.Helper()
		item, ok := CommandKind{}.Publish(hub, hubWorld)
		if !ok {
			return false
		}
		x, err := Execute(spoke, item.Content, spokeWorld)
		if err != nil {
			t.Fatal(err)
		}
		if x.Object != nil {
			spoke = x.Object
		}
		return x.Object != nil
	}
	controller := func(state string, over bool) {
		t.Helper()
		d := edit(spoke)
		status := members(spoke.Get("status"))
		status.Set("operationState", []byte(`{"phase":"`+state+`","startedAt":"2026-01-01T00:00:00Z","operation":`+string(spoke.Get("operation"))+`}`))
		d.top.Set("status", status.Bytes())
		if over {
			d.top.Remove("operation")
		}
		spoke, _ = d.done()
	}

	report()
	if deliver() {
		t.Fatal("sent without an ID")
	}
	hub, _ = SetCommandID(hub, "c1")
	report()
	if !deliver() {
		t.Fatal("not carried out")
	}
	report()
	if !isMirror(hub.Get("operation")) || deliver() {
		t.Fatalf("accepted, the hub has %s", hub.Get("operation"))
	}
	controller("Running", false)
	report()
	if deliver() || rawjson.Text(hub.Get("status", "operationState"), "phase") != "Running" {
		t.Fatal("running")
	}
	controller("Succeeded", true)
	report()
	if hub.Get("operation") != nil || rawjson.Text(hub.Get("status", "operationState"), "phase") != "Succeeded" {
		t.Fatalf("completed: %s", hub.Raw())
	}
	held, _ := StatusKind{}.ReadReplica(hub, hubWorld)
	item, _ := StatusKind{}.Publish(spoke, spokeWorld)
	expectJSON(t, "both sides", held.Content, string(item.Content))
}

// Argo CD's clients wait until status.reconciledAt is not before the end of the operation.
func TestFailCommand_EndsNotAfterLastReconciliation(t *testing.T) {
	const reconciled = "2026-01-01T00:00:00Z"
	hub, err := Parse([]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"w1","uid":"u","resourceVersion":"1"},` +
		`"operation":{"sync":{},"info":[{"name":"argocd-agent/command","value":"c1"}]},"status":{"reconciledAt":"` + reconciled + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	failed, changed := FailCommand(hub, "c1", "no", time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	if !changed {
		t.Fatal("nothing has changed")
	}
	if got := rawjson.Text(failed.Get("status"), "operationState", "finishedAt"); got != reconciled {
		t.Errorf("finishedAt is %s, reconciledAt %s", got, reconciled)
	}
}
