package kind

import (
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

const marked = `"annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"}`

func TestStatus_Projection(t *testing.T) {
	spoke := `{"metadata":{"name":"a","namespace":"argo",` + marked + `},"operation":{"sync":{"revision":"r"},"info":[]},
		"status":{"reconciledAt":"2026-01-01T00:00:00Z","health":{"status":"Healthy"},"unknown":[1.0],"conditions":[{"type":"AgentError","message":"x"},{"type":"SyncError","message":"y"}]}}`
	item, ok := StatusKind{}.Publish(object(t, spoke), managedSpoke())
	if !ok {
		t.Fatal("not published")
	}
	expectJSON(t, "content", item.Content, `{"operation":{"sync":{"revision":"r"}},
		"status":{"health":{"status":"Healthy"},"unknown":[1.0],"conditions":[{"type":"SyncError","message":"y"}]}}`)
	expectJSON(t, "extra", item.Extra, `{"reconciledAt":"2026-01-01T00:00:00Z"}`)

	if _, ok := (StatusKind{}).Publish(object(t, `{"metadata":{"name":"a","namespace":"argo"}}`), managedSpoke()); ok {
		t.Error("reported although it did not come from the hub")
	}
	if item, ok := (StatusKind{}).Publish(object(t, `{"metadata":{"name":"a","namespace":"argo"}}`), autoSpoke()); !ok || string(item.Content) != `{"status":{}}` {
		t.Errorf("without a status it is %s", item.Content)
	}
}

func TestStatus_MapsNamesOfChildApplications(t *testing.T) {
	w := autoSpoke()
	w.Settings.AllowedNamespaces = []string{"team"}
	list := `[{"group":"argoproj.io","kind":"Application","namespace":"argo","name":"child","status":"Synced"},
		{"group":"argoproj.io","kind":"Application","namespace":"team","name":"other"},
		{"group":"argoproj.io","kind":"Application","namespace":"hidden","name":"x"},
		{"kind":"Application","namespace":"argo","name":"not-argo"},{"group":"apps","kind":"Deployment","namespace":"argo","name":"d"}]`
	renamed := `[{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"child","status":"Synced"},
		{"group":"argoproj.io","kind":"Application","namespace":"one-ns","name":"team.other"},
		{"group":"argoproj.io","kind":"Application","namespace":"hidden","name":"x"},
		{"kind":"Application","namespace":"argo","name":"not-argo"},{"group":"apps","kind":"Deployment","namespace":"argo","name":"d"}]`
	status := func(l string) string {
		return `{"status":{"resources":` + l + `,"operationState":{"syncResult":{"resources":` + l + `},"operation":{"sync":{"resources":` + l + `}}}},
			"operation":{"sync":{"resources":` + l + `}}}`
	}
	o := members([]byte(status(list)))
	o.Set("metadata", []byte(`{"name":"parent","namespace":"argo"}`))
	item, _ := StatusKind{}.Publish(object(t, string(o.Bytes())), w)
	expectJSON(t, "content", item.Content, status(renamed))
}

// hubApp is a hub's Application in managed mode.
func hubApp(t *testing.T, operation, status string) *Object {
	t.Helper()
	if operation != "" {
		operation = `"operation":` + operation + `,`
	}
	return object(t, `{"metadata":{"name":"a","namespace":"one-ns","uid":"u"},`+operation+`"spec":{"project":"p","destination":{"name":"one"}},"status":`+status+`}`)
}

const (
	byCommand = `{"info":[{"name":"argocd-agent/command","value":"c1"}],"sync":{}}`
	bySpoke   = `{"initiatedBy":{"automated":true},"sync":{}}`
	mirrored  = `{"initiatedBy":{"automated":true},"sync":{},"info":[{"name":"argocd-agent/mirror","value":"true"}]}`
	mirrorOfC = `{"info":[{"name":"argocd-agent/command","value":"c1"},{"name":"argocd-agent/mirror","value":"true"}],"sync":{}}`
)

func TestStatus_MergesOnHub(t *testing.T) {
	const running = `{"phase":"Running","startedAt":"2026-01-01T00:00:00Z","operation":`
	for _, c := range []struct {
		name                    string
		operation, status       string // on the hub before
		content, extra          string
		operationAfter, status2 string
	}{
		{
			"it replaces the status", ``, `{"old":1,"reconciledAt":"2025-01-01T00:00:00Z"}`,
			`{"status":{"new":1.0}}`, `{"reconciledAt":"2026-01-01T00:00:00Z"}`,
			``, `{"new":1.0,"reconciledAt":"2026-01-01T00:00:00Z"}`,
		},
		{
			"our conditions stay, and the spoke cannot set any", ``, `{"conditions":[{"type":"AgentError","message":"m"},{"type":"SyncError","message":"old"}]}`,
			`{"status":{"conditions":[{"type":"AgentHeldWarning","message":"fake"},{"type":"ComparisonError","message":"new"}]}}`, `{}`,
			``, `{"conditions":[{"type":"ComparisonError","message":"new"},{"type":"AgentError","message":"m"}]}`,
		},
		{
			"an auto-sync of the spoke is mirrored", ``, `{}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + bySpoke + `}}}`, `{}`,
			mirrored, `{"operationState":` + running + bySpoke + `}}`,
		},
		{
			"a mirror goes with the completed state", mirrored, `{"operationState":` + running + bySpoke + `}}`,
			`{"status":{"operationState":{"phase":"Succeeded","startedAt":"2026-01-01T00:00:00Z"}}}`, `{}`,
			``, `{"operationState":{"phase":"Succeeded","startedAt":"2026-01-01T00:00:00Z"}}`,
		},
		{
			"a command without an ID stays, with the state that was cleared for it", `{"sync":{}}`, `{}`,
			`{"status":{"operationState":{"phase":"Succeeded"},"health":{}}}`, `{}`,
			`{"sync":{}}`, `{"health":{}}`,
		},
		{
			"a command that the spoke has not accepted stays", byCommand, `{}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + bySpoke + `}}}`, `{"lastCommands":["c0"]}`,
			byCommand, `{}`,
		},
		{
			"an operation put over a running one waits, and the state flows on", byCommand, `{"operationState":` + running + bySpoke + `}}`,
			`{"status":{"operationState":{"phase":"Failed"}}}`, `{}`,
			byCommand, `{"operationState":{"phase":"Failed"}}`,
		},
		{
			"accepted: set on the spoke", byCommand, `{}`,
			`{"operation":` + byCommand + `,"status":{}}`, `{}`,
			mirrorOfC, `{}`,
		},
		{
			"accepted: running", byCommand, `{}`,
			`{"operation":` + byCommand + `,"status":{"operationState":` + running + byCommand + `}}}`, `{}`,
			mirrorOfC, `{"operationState":` + running + byCommand + `}}`,
		},
		{
			"accepted: over already", byCommand, `{}`,
			`{"status":{"operationState":{"phase":"Succeeded","operation":` + byCommand + `}}}`, `{}`,
			``, `{"operationState":{"phase":"Succeeded","operation":` + byCommand + `}}`,
		},
		{
			"accepted: over, and another one since", byCommand, `{}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + bySpoke + `}}}`, `{"lastCommands":["c0","c1"]}`,
			mirrored, `{"operationState":` + running + bySpoke + `}}`,
		},
		{
			"a terminate stays while the operation runs", mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z"}}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + bySpoke + `}}}`, `{}`,
			mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":` + bySpoke + `}}`,
		},
		{
			"a terminate does not hit a later operation", mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2025-01-01T00:00:00Z"}}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + bySpoke + `}}}`, `{}`,
			mirrored, `{"operationState":` + running + bySpoke + `}}`,
		},
		{
			"a terminate does not hit an operation that started in the same second", mirrorOfC,
			`{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":` + byCommand + `}}`,
			`{"operation":` + bySpoke + `,"status":{"operationState":` + running + byCommand + `}}}`, `{"lastCommands":["c1"]}`,
			mirrored, `{"operationState":` + running + byCommand + `}}`,
		},
		{
			"a terminate ends with the operation", mirrored, `{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z"}}`,
			`{"status":{"operationState":{"phase":"Failed","startedAt":"2026-01-01T00:00:00Z"}}}`, `{}`,
			``, `{"operationState":{"phase":"Failed","startedAt":"2026-01-01T00:00:00Z"}}`,
		},
	} {
		local := hubApp(t, c.operation, c.status)
		merged, err := StatusKind{}.Merge(local, named("a"), []byte(c.content), []byte(c.extra), Ownership{}, managedHub())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := hubApp(t, c.operationAfter, c.status2)
		expectJSON(t, c.name, merged.Raw(), string(want.Raw()))
		again, err := StatusKind{}.Merge(merged, named("a"), []byte(c.content), []byte(c.extra), Ownership{}, managedHub())
		if err != nil || !Same(merged, again) {
			t.Errorf("%s: a second time it is %s (%v)", c.name, again.Raw(), err)
		}
	}
}

func TestStatus_EmptyIsNoReasonToWrite(t *testing.T) {
	const before = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"one-ns","uid":"u"},"spec":{"project":"p","destination":{"name":"one"}}`
	for _, c := range []struct{ name, hub, content, want string }{
		{"no status", `}`, `{"status":{}}`, ``},
		{"an empty status", `,"status":{}}`, `{"status":{}}`, `{}`},
		{"a status that the spoke no longer has", `,"status":{"health":{"status":"Healthy"}}}`, `{"status":{}}`, `{}`},
		{"no status and a running operation", `}`, `{"status":{},"operation":` + bySpoke + `}`, ``},
		{"the first status", `}`, `{"status":{"health":{"status":"Healthy"}}}`, `{"health":{"status":"Healthy"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub := object(t, before+c.hub)
			merged, err := StatusKind{}.Merge(hub, named("a"), []byte(c.content), nil, Ownership{}, managedHub())
			if err != nil {
				t.Fatal(err)
			}
			if got := string(merged.Get("status")); got != c.want {
				t.Errorf("status is %s, want %s", got, c.want)
			}
			if c.name == "no status" && !Same(hub, merged) {
				t.Errorf("an empty status changes the Application to %s", merged.Raw())
			}
		})
	}
}

func TestStatus_ExcludesPendingCommand(t *testing.T) {
	w := managedHub()
	held, ok := StatusKind{}.ReadReplica(hubApp(t, byCommand, `{"health":{},"reconciledAt":"2026-01-01T00:00:00Z","conditions":[{"type":"AgentError","message":"m"}]}`), w)
	if !ok || string(held.Content) != `{"status":{"health":{}}}` {
		t.Errorf("held is %s", held.Content)
	}
	held, _ = StatusKind{}.ReadReplica(hubApp(t, mirrored, `{}`), w)
	expectJSON(t, "mirror", held.Content, `{"operation":`+bySpoke+`,"status":{}}`)
}

func TestStatus_EndsRefreshInTheSameWrite(t *testing.T) {
	w := managedHub()
	w.RefreshNonce = func(engine.Key) string { return "n2" }
	local := object(t, `{"metadata":{"name":"a","namespace":"one-ns","annotations":{"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/hydrate":"normal","keep":"me"}},"spec":{"destination":{"name":"one"}}}`)
	for extra, pending := range map[string]bool{`{}`: true, `{"refreshed":"n1"}`: true, `{"refreshed":"n2"}`: false} {
		merged, err := StatusKind{}.Merge(local, named("a"), []byte(`{"status":{}}`), []byte(extra), Ownership{}, w)
		if err != nil || RefreshPending(merged) != pending || merged.Annotation("keep") != "me" {
			t.Errorf("%s: annotations are %v (%v)", extra, merged.Annotations(), err)
		}
	}
}

func TestStatus_OnlyForApplicationsOfTheAgent(t *testing.T) {
	content := []byte(`{"status":{}}`)
	byDestination := newEnv(Hub, Managed, ByDestination)
	for _, c := range []struct {
		name  string
		local *Object
		key   engine.Key
		w     *Env
		code  engine.Code
	}{
		{"nothing there", nil, named("a"), managedHub(), engine.NoObject},
		{"another agent's by destination", object(t, `{"metadata":{"name":"a","namespace":"argocd"},"spec":{"destination":{"name":"two"}}}`), engine.Key{Namespace: "argocd", Name: "a"}, byDestination, engine.NoObject},
		{"one in autonomous mode that is not a copy", object(t, `{"metadata":{"name":"a","namespace":"one-ns"}}`), named("a"), autoHub(), engine.NoObject},
		{"labelled ignore-sync", object(t, `{"metadata":{"name":"a","namespace":"one-ns","labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"}}}`), named("a"), managedHub(), engine.NoObject},
		{"a namespace in the key", object(t, `{"metadata":{"name":"a","namespace":"two-ns"}}`), engine.Key{Namespace: "two-ns", Name: "a"}, managedHub(), engine.Invalid},
		{"on the spoke", object(t, `{"metadata":{"name":"a","namespace":"argo"}}`), named("a"), managedSpoke(), engine.WrongMode},
	} {
		_, err := StatusKind{}.Merge(c.local, c.key, content, nil, Ownership{}, c.w)
		expectRejected(t, c.name, err, c.code)
	}
	_, err := StatusKind{}.Merge(hubApp(t, "", "{}"), named("a"), []byte(`{"status":[]}`), nil, Ownership{}, managedHub())
	expectRejected(t, "a status that is a list", err, engine.Invalid)
}

func TestStatus_TruncatesOversizedStatus(t *testing.T) {
	w := managedHub()
	w.Settings.ObjectLimit = 4000
	big := func(n int) string { return `["` + strings.Repeat("x", n) + `"]` }
	take := func(results, resources, rest int) (*Object, error) {
		content := `{"status":{"operationState":{"syncResult":{"revision":"r","resources":` + big(results) + `}},"resources":` + big(resources) + `,"rest":` + big(rest) + `}}`
		return StatusKind{}.Merge(hubApp(t, "", "{}"), named("a"), []byte(content), nil, Ownership{}, w)
	}
	has := func(o *Object, path ...string) bool { return o.Get(append([]string{"status"}, path...)...) != nil }

	o, err := take(10, 10, 10)
	if err != nil || has(o, "conditions") {
		t.Errorf("small enough, and yet: %v", err)
	}
	o, err = take(5000, 10, 10)
	if err != nil || has(o, "operationState", "syncResult", "resources") || !has(o, "resources") || !strings.Contains(string(o.Get("status", "conditions")), ConditionTruncated) {
		t.Errorf("results too large: %v", err)
	}
	if string(o.Get("status", "operationState", "syncResult", "revision")) != `"r"` {
		t.Error("the revision went too")
	}
	o, err = take(5000, 5000, 10)
	if err != nil || has(o, "resources") || len(ourConditions(o.Get("status", "conditions"))) != 1 {
		t.Errorf("resources too large: %v", err)
	}
	_, err = take(10, 10, 5000)
	expectRejected(t, "hopelessly large", err, engine.TooLarge)

	o, _ = take(5000, 10, 10)
	o, err = StatusKind{}.Merge(o, named("a"), []byte(`{"status":{}}`), nil, Ownership{}, w)
	if err != nil || has(o, "conditions") {
		t.Errorf("the condition stays after the cure: %v", err)
	}
}

func TestStatus_ReportsImportantChangesImmediately(t *testing.T) {
	at := func(clock string) string { return `{"reconciledAt":"2026-01-01T` + clock + `Z"}` }
	o := object(t, `{"metadata":{"name":"a"},"status":{"operationState":{"finishedAt":"2026-01-01T12:00:00Z"}}}`)
	for _, c := range []struct {
		name, sent, now string
		want            bool
	}{
		{"the first comparison after the operation", at("11:59:00"), at("12:00:00"), true},
		{"before the operation's end", at("11:50:00"), at("11:59:59"), false},
		{"another comparison long after", at("12:01:00"), at("12:04:00"), false},
		{"nothing was ever sent", `{}`, at("12:01:00"), true},
		{"a refresh is over", `{"refreshed":"a"}`, `{"refreshed":"b"}`, true},
		{"a refresh begins", `{"refreshed":"a"}`, `{}`, false},
		{"a command was taken up", `{}`, `{"lastCommands":["c"]}`, true},
		{"nothing", `{}`, `{}`, false},
	} {
		if got := Urgent(o, []byte(c.sent), []byte(c.now)); got != c.want {
			t.Errorf("%s: urgent is %v", c.name, got)
		}
	}
	if Urgent(object(t, `{"metadata":{"name":"a"}}`), []byte(at("11:00:00")), []byte(at("12:00:00"))) {
		t.Error("urgent although there was no operation")
	}
}

func TestConditions_SetAndRemoved(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	plain := object(t, `{"metadata":{"name":"a"},"status":{"conditions":[{"type":"SyncError","message":"x"}]}}`)
	with := SetCondition(plain, ConditionError, "refused", at)
	expectJSON(t, "set", with.Get("status", "conditions"), `[{"type":"SyncError","message":"x"},{"type":"AgentError","message":"refused","lastTransitionTime":"2026-01-02T03:04:05Z"}]`)
	if SetCondition(with, ConditionError, "refused", at.Add(time.Hour)) != with {
		t.Error("the same message is written again")
	}
	other := SetCondition(with, ConditionError, "for another reason", at)
	if len(ourConditions(other.Get("status", "conditions"))) != 1 {
		t.Error("two conditions of one type")
	}
	if cleared := ClearCondition(other, ConditionError); !Same(cleared, plain) || ClearCondition(cleared, ConditionError) != cleared {
		t.Errorf("cleared: %s", cleared.Raw())
	}
	bare := SetDegraded(object(t, `{"metadata":{"name":"a"}}`), "not adopted")
	expectJSON(t, "degraded", bare.Get("status"), `{"health":{"status":"Degraded","message":"not adopted"}}`)
	if SetDegraded(bare, "not adopted") != bare {
		t.Error("degraded twice")
	}
}

func TestRefreshedNonce_CanBeSetByUser(t *testing.T) {
	o := object(t, `{"metadata":{"name":"a"},"spec":{}}`)
	expectJSON(t, "extra", WithRefreshed(o, []byte(`{"reconciledAt":"2026-01-01T00:00:00Z"}`), "n"), `{"reconciledAt":"2026-01-01T00:00:00Z","refreshed":"n"}`)
	if rawjson.Text(WithRefreshed(o, nil, "n"), "refreshed") != "n" {
		t.Error("not added to nothing")
	}
}

// From Argo CD 3.5 the controller removes the hydrate annotation only from
// Applications with a source hydrator, and not together with refresh. Clients
// wait for refresh alone.
func TestRefresh_DoesNotWaitForHydration(t *testing.T) {
	app := func(hydrator, annotations string) *Object {
		return object(t, `{"metadata":{"name":"a","namespace":"one-ns","annotations":`+annotations+`},"spec":{`+hydrator+`}}`)
	}
	const (
		plain    = `"destination":{"name":"one"}`
		hydrated = plain + `,"sourceHydrator":{"drySource":{}}`
		both     = `{"argocd.argoproj.io/refresh":"normal","argocd.argoproj.io/hydrate":"normal"}`
		hydrate  = `{"argocd.argoproj.io/hydrate":"normal"}`
	)
	for _, c := range []struct {
		name, hydrator, spoke, hub string
		refresh, hydrate           string // left on the hub
	}{
		{"both are pending", hydrated, both, both, "normal", "normal"},
		{"the hydration takes longer", hydrated, hydrate, both, "", "normal"},
		{"both are done", hydrated, `{}`, both, "", ""},
		{"the hydration was left", hydrated, `{}`, hydrate, "", ""},
		{"no hydrator", plain, hydrate, both, "", ""},
	} {
		w := managedHub()
		w.RefreshNonce = func(engine.Key) string { return "n1" }
		merged, err := StatusKind{}.Merge(app(c.hydrator, c.hub), named("a"), []byte(`{"status":{}}`), WithRefreshed(app(c.hydrator, c.spoke), nil, "n1"), Ownership{}, w)
		if err != nil || merged.Annotation(RefreshAnnotation) != c.refresh || merged.Annotation(HydrateAnnotation) != c.hydrate {
			t.Errorf("%s: annotations on the hub are %v (%v)", c.name, merged.Annotations(), err)
		}
	}
	if c, ok := Pending(app(plain, hydrate), managedHub()); ok {
		t.Errorf("hydrate alone is pending without a source hydrator: %+v", c)
	}
}
