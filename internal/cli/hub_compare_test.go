package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

// hubAPI is the API server of a hub with the paths of objects and lists.
type hubAPI struct {
	objects   map[string]string   // JSON of objects by path
	lists     map[string][]string // JSON of items by path
	expires   string              // list whose continue token expires after the first item
	forbidden string              // path

	mu      sync.Mutex
	written []string // bodies of writes
}

const (
	applicationsPath = "/apis/argoproj.io/v1alpha1/applications"
	namespacedPath   = "/apis/argoproj.io/v1alpha1/namespaces/%s/applications"
	paramsPath       = "/api/v1/namespaces/argocd/configmaps/argocd-agent-params"
	deploymentPath   = "/apis/apps/v1/namespaces/argocd/deployments/argocd-agent-principal"
)

func (a *hubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"%s of %s","details":{"name":%q,"kind":%q},"code":%d}`,
			reason, reason, r.URL.Path, path.Base(r.URL.Path), path.Base(path.Dir(r.URL.Path)), code)
	}
	if r.URL.Path == a.forbidden {
		fail(http.StatusForbidden, "Forbidden")
		return
	}
	if r.Method != http.MethodGet {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.written = append(a.written, string(body))
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-agent-hub","namespace":"argocd","resourceVersion":"9"}}`)
		return
	}
	listKind := map[string]string{"configmaps": "ConfigMapList", "secrets": "SecretList", "appprojects": "AppProjectList", "agents": "AgentList",
		"applications": "ApplicationList", "deployments": "DeploymentList"}[path.Base(r.URL.Path)]
	object, found := a.objects[r.URL.Path]
	items, next := a.lists[r.URL.Path], ""
	switch {
	case found:
		fmt.Fprint(w, object)
		return
	case listKind == "":
		fail(http.StatusNotFound, "NotFound")
		return
	case r.URL.Path != a.expires:
	case r.URL.Query().Has("continue"):
		fail(http.StatusGone, "Expired")
		return
	case r.URL.Query().Has("limit"):
		items, next = items[:1], "first"
	}
	version := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/")
	version, _, _ = strings.Cut(version, "/namespaces/")
	fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"9","continue":%q},"items":[%s]}`, version, listKind, next, strings.Join(items, ","))
}

// demotedPair returns hub a, which was active and is demoted, and hub b, its standby.
func demotedPair(t *testing.T, a, b *hubAPI) (old, h *hubInfo) {
	t.Helper()
	hub := func(api *hubAPI, name string, s hubstate.State) *hubInfo {
		server := httptest.NewServer(api)
		t.Cleanup(server.Close)
		c := at(t, server.URL)
		c.role, c.context = "hub", name
		s.Identity, s.Generation, s.Role = "group", 1, hubstate.Standby
		return &hubInfo{cluster: c, uid: name, state: s, stored: parsedObject(t, `{"metadata":{"name":"argocd-agent-hub","namespace":"argocd","uid":"u","resourceVersion":"1"}}`)}
	}
	return hub(a, "a", hubstate.State{WasActive: 1}), hub(b, "b", hubstate.State{Predecessor: engine.Store{UID: "a", Revision: 5}})
}

// appOf returns an Application of the hub that was active.
func appOf(namespace, name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"u-%[1]s","resourceVersion":"3"},"spec":{"project":"p"}}`, name, namespace)
}

// copyOf returns what a standby has of an Application of the hub that was active.
func copyOf(namespace, name string, annotations ...string) string {
	record, _ := json.Marshal(fmt.Sprintf(`{"hub":"group","uid":"u-%s"}`, name))
	annotations = append(annotations, fmt.Sprintf(`"argocd.argoproj.io/source-uid":"u-%s","argocd.argoproj.io/principal-uid":"group","argocd-agent.argoproj-labs.io/standby":%s`, name, record))
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"v-%[1]s","resourceVersion":"4","annotations":{%[3]s}},"spec":{"project":"p"}}`,
		name, namespace, strings.Join(annotations, ","))
}

func TestCompareHubs_FindsWhatTheStandbyLacks(t *testing.T) {
	refresh := `"argocd.argoproj.io/refresh":"normal","argocd.argoproj.io/hydrate-timestamp":"t"`
	for title, c := range map[string]struct {
		active, standby []string
		want            string
	}{
		"equal":   {[]string{appOf("x", "a")}, []string{copyOf("x", "a")}, ""},
		"missing": {[]string{appOf("x", "a")}, nil, "Application x/a (missing)"},
		"differs": {[]string{appOf("x", "a")}, []string{copyOf("x", "a", `"edited":"yes"`)}, "Application x/a (differs)"},
		"deleted": {nil, []string{copyOf("x", "a")}, "Application x/a (not deleted)"},
		"its own": {nil, []string{appOf("x", "b")}, ""},
		"refresh": {[]string{appOf("x", "a")}, []string{copyOf("x", "a", refresh)}, ""},
		"refresh of the active hub": {[]string{strings.Replace(appOf("x", "a"), `"uid"`, `"annotations":{`+refresh+`},"uid"`, 1)},
			[]string{copyOf("x", "a")}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			old, h := demotedPair(t, &hubAPI{lists: map[string][]string{applicationsPath: c.active}}, &hubAPI{lists: map[string][]string{applicationsPath: c.standby}})
			found, err := compareHubs(t.Context(), old, h)
			if err != nil || found.String() != c.want {
				t.Errorf("%v, %v, want %q", found, err, c.want)
			}
		})
	}
}

// If the continue token of one namespace expires, only the objects of this namespace are read again.
func TestCompareHubs_ReadsOneNamespaceAgain(t *testing.T) {
	one, two := fmt.Sprintf(namespacedPath, "one"), fmt.Sprintf(namespacedPath, "two")
	params := map[string]string{paramsPath: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-agent-params","namespace":"argocd"},
		"data":{"ARGOCD_PRINCIPAL_NAMESPACED":"true","ARGOCD_PRINCIPAL_ALLOWED_NAMESPACES":"one,two"}}`}
	apps := func(app func(namespace, name string) string) map[string][]string {
		return map[string][]string{one: {app("one", "a")}, two: {app("two", "b"), app("two", "c")}}
	}
	copied := func(namespace, name string) string { return copyOf(namespace, name) }
	for title, c := range map[string]struct {
		change func(active, standby *hubAPI)
		want   string
	}{
		"of the active hub": {func(active, standby *hubAPI) { active.expires, standby.lists[one] = two, nil }, "Application one/a (missing)"},
		"of the standby":    {func(_, standby *hubAPI) { standby.expires = two }, ""},
		"of the standby, which has more": {func(active, standby *hubAPI) { standby.expires, active.lists[one] = two, nil },
			"Application one/a (not deleted)"},
		"of both": {func(active, standby *hubAPI) {
			active.expires, standby.expires = two, two
			active.lists[two] = append(active.lists[two], appOf("two", "d"))
		}, "Application two/d (missing)"},
	} {
		t.Run(title, func(t *testing.T) {
			active, standby := &hubAPI{objects: params, lists: apps(appOf)}, &hubAPI{objects: params, lists: apps(copied)}
			c.change(active, standby)
			old, h := demotedPair(t, active, standby)
			found, err := compareHubs(t.Context(), old, h)
			if err != nil || found.String() != c.want {
				t.Errorf("%v, %v, want %q", found, err, c.want)
			}
		})
	}
}

// A list can be set with several arguments, of which the principal reads all.
func TestCompareHubs_ReadsTheNamespacesOfEveryArgument(t *testing.T) {
	one, two := fmt.Sprintf(namespacedPath, "one"), fmt.Sprintf(namespacedPath, "two")
	principal := map[string]string{deploymentPath: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"argocd-agent-principal","namespace":"argocd"},
		"spec":{"template":{"spec":{"containers":[{"name":"principal","args":["--namespaced","--allowed-namespaces=one","--allowed-namespaces=two"]}]}}}}`}
	old, h := demotedPair(t, &hubAPI{objects: principal, lists: map[string][]string{one: {appOf("one", "a")}, two: {appOf("two", "b")}}},
		&hubAPI{objects: principal, lists: map[string][]string{two: {copyOf("two", "b")}}})
	const want = "Application one/a (missing)"
	if found, err := compareHubs(t.Context(), old, h); err != nil || found.String() != want {
		t.Errorf("%v, %v, want %q", found, err, want)
	}
}

func TestPromote_ShowsWhatIsLost(t *testing.T) {
	for title, c := range map[string]struct {
		change  func(active, standby *hubAPI, h *hubInfo)
		accept  bool
		refused string // part of the error; if empty, the standby is promoted
		printed string // part of the output
	}{
		"equal":           {func(_, standby *hubAPI, _ *hubInfo) { standby.lists[applicationsPath] = []string{copyOf("x", "a")} }, false, "", "the hub (context b"},
		"missing":         {func(_, _ *hubAPI, _ *hubInfo) {}, false, "1 object of the hub (context a, namespace argocd): Application x/a (missing). A promotion would lose that", ""},
		"missing, accept": {func(_, _ *hubAPI, _ *hubInfo) {}, true, "", "Application x/a (missing)"},
		"unknown which was active": {func(_, _ *hubAPI, h *hubInfo) { h.state.WasActive = 1 }, false,
			"Application x/a (missing). It is not known which of the hubs was active last, because an older release changed their roles, or a promotion was interrupted. " +
				"Promote the one that was active last, with --accept-loss", ""},
		"never recorded": {func(_, standby *hubAPI, h *hubInfo) {
			standby.lists[applicationsPath], h.state.Predecessor.Revision = []string{copyOf("x", "a")}, 0
		}, false, "has never recorded that it had all objects", ""},
		"never recorded, accept": {func(_, _ *hubAPI, h *hubInfo) { h.state.Predecessor.Revision = 0 }, true, "",
			"has never recorded that it had all objects of the hub (context a, namespace argocd), and the hub (context b, namespace argocd) has not received the last state of 1 object"},
		"forbidden":         {func(_, standby *hubAPI, _ *hubInfo) { standby.forbidden = applicationsPath }, false, "Nothing was changed. To promote the hub (context b, namespace argocd) without the comparison, set --accept-loss", ""},
		"forbidden, accept": {func(active, _ *hubAPI, _ *hubInfo) { active.forbidden = applicationsPath }, true, "", "lacks of the hub (context a, namespace argocd) is unknown: compare the objects of both hubs: list applications"},
	} {
		t.Run(title, func(t *testing.T) {
			active, standby := &hubAPI{lists: map[string][]string{applicationsPath: {appOf("x", "a")}}}, &hubAPI{lists: map[string][]string{}}
			old, h := demotedPair(t, active, standby)
			c.change(active, standby, h)
			var output strings.Builder
			p := &Program{Stdout: &output, Stderr: &output, yes: true, Now: func() time.Time { return today }}
			err := p.promote(t.Context(), h, old, c.accept)
			if promoted := len(standby.written) == 1 && len(active.written) == 1; promoted != (c.refused == "") || !promoted && len(standby.written)+len(active.written) > 0 {
				t.Errorf("promoted: %t", promoted)
			}
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("error %v", err)
			}
			if !strings.Contains(output.String(), c.printed) {
				t.Errorf("output %s", &output)
			}
		})
	}
}

// What the comparison has found to be equal counts as received, so that agents hold nothing of the last minute. What a user accepts to
// lose does not count.
func TestPromote_RecordsWhatWasCompared(t *testing.T) {
	for title, c := range map[string]struct {
		change func(active *hubAPI, h *hubInfo)
		accept bool
		want   string
	}{
		"equal":             {func(*hubAPI, *hubInfo) {}, false, "a/9"},
		"equal, accept":     {func(*hubAPI, *hubInfo) {}, true, "a/9"},
		"differs, accept":   {func(a *hubAPI, _ *hubInfo) { a.lists[applicationsPath] = []string{appOf("x", "late")} }, true, "a/5"},
		"mark of the Agent": {func(a *hubAPI, h *hubInfo) { h.state.Predecessor.Mark, a.objects = markOf(2), agentWithMark("b", 3) }, false, "a/9"},
		"lost mark":         {func(a *hubAPI, h *hubInfo) { h.state.Predecessor.Mark, a.objects = markOf(4), agentWithMark("b", 3) }, false, "a/5"},
		"no Agent":          {func(_ *hubAPI, h *hubInfo) { h.state.Predecessor.Mark = markOf(2) }, false, "a/5"},
	} {
		t.Run(title, func(t *testing.T) {
			active := &hubAPI{lists: map[string][]string{applicationsPath: {appOf("x", "a")}}}
			standby := &hubAPI{lists: map[string][]string{applicationsPath: {copyOf("x", "a")}}}
			old, h := demotedPair(t, active, standby)
			c.change(active, h)
			p := &Program{Stdout: io.Discard, Stderr: io.Discard, yes: true, Now: func() time.Time { return today }}
			if err := p.promote(t.Context(), h, old, c.accept); err != nil || len(standby.written) != 1 {
				t.Fatalf("%v, written %q", err, standby.written)
			}
			var written struct{ Data struct{ Predecessor string } }
			if err := json.Unmarshal([]byte(standby.written[0]), &written); err != nil || written.Data.Predecessor != c.want {
				t.Errorf("predecessor %q, %v", written.Data.Predecessor, err)
			}
		})
	}
}

// The standby was restored from a backup since the active hub received its objects. They belong to it, as for the standby itself.
func TestCompareHubs_RestoredStandby(t *testing.T) {
	for title, c := range map[string]struct {
		mark uint64
		want string
	}{"received": {4, "Application x/stays (not deleted)"}, "restored": {3, ""}} {
		t.Run(title, func(t *testing.T) {
			own := agentWithMark("a", c.mark)
			old, h := demotedPair(t, &hubAPI{}, &hubAPI{objects: own, lists: map[string][]string{applicationsPath: {appOf("x", "stays")}}})
			old.state.Predecessor = engine.Store{UID: "b", Revision: 100, Mark: markOf(4)}
			found, err := compareHubs(t.Context(), old, h)
			if err != nil || found.String() != c.want {
				t.Errorf("%v, %v, want %q", found, err, c.want)
			}
		})
	}
}

// The CA and the join tokens are in a namespace of their own, which only the settings of the principals name.
func TestPromote_ComparesThePKINamespaceOfThePrincipal(t *testing.T) {
	params := map[string]string{paramsPath: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-agent-params","namespace":"argocd"},
		"data":{"ARGOCD_PRINCIPAL_PKI_NAMESPACE":"pki"}}`}
	token := `{"metadata":{"name":"argocd-agent-join-aaaaaaaa","namespace":"pki","uid":"u-1","resourceVersion":"3","labels":{"argocd-agent.argoproj-labs.io/join":"w1"}},"data":{"x":"eA=="}}`
	standby := &hubAPI{objects: params}
	old, h := demotedPair(t, &hubAPI{objects: params, lists: map[string][]string{"/api/v1/namespaces/pki/secrets": {token}}}, standby)
	p := &Program{Stdout: io.Discard, Stderr: io.Discard, yes: true, Now: func() time.Time { return today }}
	if err := p.promote(t.Context(), h, old, false); err == nil || !strings.Contains(err.Error(), "argocd-agent-join-aaaaaaaa (missing)") || len(standby.written) > 0 {
		t.Errorf("error %v, written %q", err, standby.written)
	}
	if err := errors.Join(old.usePKINamespace(t.Context()), h.usePKINamespace(t.Context())); err != nil || old.pki != "pki" || h.pki != "pki" {
		t.Errorf("CAs are read in namespaces %q and %q, %v", old.pki, h.pki, err)
	}
}

func markOf(number uint64) engine.HistoryMark { return engine.HistoryMark{Record: "r", Number: number} }

// agentWithMark returns the Agent of another hub with a history mark.
func agentWithMark(hub string, number uint64) map[string]string {
	name := hubstate.AgentName(hub)
	return map[string]string{"/apis/argocd-agent.argoproj-labs.io/v1alpha1/namespaces/argocd/agents/" + name: fmt.Sprintf(
		`{"metadata":{"name":%q,"namespace":"argocd","uid":"u"},"spec":{"mode":"standby"},"status":{"historyRecord":"r","historyMark":%d}}`, name, number)}
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// The demoted hub is edited while the command waits for an answer.
func TestPromote_ComparesAfterTheAnswer(t *testing.T) {
	active, standby := &hubAPI{lists: map[string][]string{applicationsPath: {appOf("x", "a")}}}, &hubAPI{lists: map[string][]string{applicationsPath: {copyOf("x", "a")}}}
	old, h := demotedPair(t, active, standby)
	p := &Program{Stdout: io.Discard, Stderr: io.Discard, Interactive: true, Now: func() time.Time { return today }, Stdin: readerFunc(func(b []byte) (int, error) {
		active.lists[applicationsPath] = []string{appOf("x", "a"), appOf("x", "late")}
		return copy(b, "y\n"), nil
	})}
	if err := p.promote(t.Context(), h, old, false); err == nil || !strings.Contains(err.Error(), "Application x/late (missing)") {
		t.Errorf("error %v", err)
	}
	if len(active.written)+len(standby.written) > 0 {
		t.Errorf("written: %q, %q", active.written, standby.written)
	}
}

// A user who cancels the command does not accept a loss.
func TestPromote_StopsIfCanceled(t *testing.T) {
	old, h := demotedPair(t, &hubAPI{}, &hubAPI{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &Program{Stderr: io.Discard}
	if _, _, err := p.checkLoss(ctx, h, old, true); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
