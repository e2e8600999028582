package query

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

var (
	now        = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	everything = Scope{Namespace: Any, Project: Any, Agent: Any}
	nothing    = Scope{}
	// Agent a is in sync, b was two hours ago, c never.
	exampleClock = Clock{Now: now, InSync: func(agent string) time.Time {
		return map[string]time.Time{"a": now.Add(-10 * time.Second), "b": now.Add(-2 * time.Hour)}[agent]
	}}
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func example() *Model {
	m := NewModel("test")
	for _, a := range []Application{
		{Namespace: "a", Name: "web", Agent: "a", Project: "shop", Health: "Healthy", Sync: "Synced", Operation: "Succeeded", Revisions: []string{commit},
			Images: []string{"docker.io/library/nginx:1.25.3", "redis:7"}, Labels: map[string]string{"team": "blue"}, Changed: now.Add(-5 * time.Minute)},
		{Namespace: "a", Name: "db", Agent: "a", Project: "shop", Health: "Degraded", Sync: "OutOfSync", Operation: "Failed", Revisions: []string{"main"},
			Images: []string{"postgres:16"}, Conditions: []string{"SyncError"}, Labels: map[string]string{"team": "red team"}, Changed: now.Add(-2 * time.Hour)},
		{Namespace: "b", Name: "web", Agent: "b", Project: "shop", Health: "Healthy", Sync: "OutOfSync", Operation: "Error", Revisions: []string{commit},
			Images: []string{"docker.io/library/nginx:1.19.0"}, Charts: []string{"nginx:15.4.1"}, Conditions: []string{"AgentDisconnected"}, Changed: now.Add(-3 * 24 * time.Hour)},
		{Namespace: "c", Name: "cache", Agent: "c", Project: "infra", Health: "Progressing", Sync: "Synced", Revisions: []string{"v2", commit}, Changed: now.Add(-time.Minute)},
		{Namespace: "argocd", Name: "hub", Project: "default", Health: "Unknown", Sync: "Unknown"},
	} {
		m.Set(a)
	}
	return m
}

func namesOf(page Page) string {
	var names []string
	for _, a := range page.Items {
		names = append(names, a.Namespace+"/"+a.Name)
	}
	return strings.Join(names, " ")
}

func TestList_Filters(t *testing.T) {
	s := example().Snapshot()
	for query, want := range map[string]string{
		"":                            "a/db a/web argocd/hub b/web c/cache",
		"health!=Healthy":             "a/db argocd/hub c/cache",
		"health=healthy":              "a/web b/web",
		"health=Degraded,Unknown":     "a/db argocd/hub",
		"image~nginx:1.2*":            "a/web",
		"image~nginx":                 "a/web b/web",
		"image~library*1.19":          "b/web",
		"image=redis:7":               "a/web",
		"image=":                      "argocd/hub c/cache",
		"image!=":                     "a/db a/web b/web",
		"image!~nginx":                "a/db argocd/hub c/cache",
		"revision!=" + commit:         "a/db argocd/hub",
		"revision=0123456":            "a/web b/web c/cache",
		"revision=012345":             "",
		"revision!=0123456 agent!=":   "a/db",
		"chart=nginx:15.4.1":          "b/web",
		"sync=OutOfSync":              "a/db b/web",
		"operation=Failed,Error":      "a/db b/web",
		"condition=AgentDisconnected": "b/web",
		"agent=":                      "argocd/hub",
		"project!=shop":               "argocd/hub c/cache",
		"label.team=blue":             "a/web",
		`label.team="red team"`:       "a/db",
		"label.team=":                 "argocd/hub b/web c/cache",
		"label.team!=blue":            "a/db argocd/hub b/web c/cache",
		"freshness>1h":                "b/web c/cache",
		"freshness<1h":                "a/db a/web",
		"changed<10m":                 "a/web c/cache",
		"changed>1h":                  "a/db b/web",
		"changed>2d":                  "b/web",
		"POSTGRES":                    "a/db",
		`"red t"`:                     "a/db",
		"web shop":                    "a/web b/web",
		"name=web agent=b":            "b/web",
		"name!=web agent!=":           "a/db c/cache",
		"nosuch":                      "",
	} {
		page, err := s.List(Request{Query: mustParse(t, query), Limit: 10}, everything, exampleClock)
		if got := namesOf(page); err != nil || got != want || page.Total != len(page.Items) {
			t.Errorf("%q: %q (total %d), want %q, %v", query, got, page.Total, want, err)
		}
	}
}

func TestList_SortsAndPages(t *testing.T) {
	s := example().Snapshot()
	for by, want := range map[string]string{
		"":            "a/db a/web argocd/hub b/web c/cache",
		"name":        "c/cache a/db argocd/hub a/web b/web",
		"-name":       "a/web b/web argocd/hub a/db c/cache",
		"changed":     "c/cache a/web a/db b/web argocd/hub",
		"-freshness":  "argocd/hub c/cache b/web a/db a/web",
		"label.team":  "argocd/hub b/web c/cache a/web a/db",
		"-agent":      "c/cache b/web a/db a/web argocd/hub",
		"health":      "a/db a/web b/web c/cache argocd/hub",
		"-namespace":  "c/cache b/web argocd/hub a/db a/web",
		"-label.team": "a/db a/web argocd/hub b/web c/cache",
	} {
		for limit := 1; limit <= 6; limit++ {
			var got []string
			request := Request{Sort: by, Limit: limit}
			for {
				page, err := s.List(request, everything, exampleClock)
				if err != nil || page.Total != 5 || len(page.Items) > limit || len(page.Items) == 0 {
					t.Fatalf("sort %q, limit %d: %+v, %v", by, limit, page, err)
				}
				got = append(got, namesOf(page))
				if request.Token = page.Next; page.Next == "" {
					break
				}
			}
			if all := strings.Join(got, " "); all != want {
				t.Errorf("sort %q, limit %d: %q, want %q", by, limit, all, want)
			}
		}
	}
	if _, err := s.List(Request{Sort: "image", Limit: 1}, everything, exampleClock); err == nil || !strings.Contains(err.Error(), "cannot sort by image") {
		t.Error(err)
	}
	if _, err := s.List(Request{Sort: "size", Limit: 1}, everything, exampleClock); err == nil || !strings.Contains(err.Error(), `unknown field "size"`) {
		t.Error(err)
	}
}

func TestTokens_RefuseOtherVersionsAndQueries(t *testing.T) {
	m := example()
	s := m.Snapshot()
	page, err := s.List(Request{Query: mustParse(t, "web"), Limit: 1}, everything, exampleClock)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	for token, want := range map[string]string{
		encode([]byte(`{"v":2,"k":"page"}`)):       "the page token has version 2, this principal uses version 1: start again",
		encode([]byte(`{"v":1,"k":"watch"}`)):      "not a page token",
		encode([]byte(`{"v":1,"k":"page","q":7}`)): "not a page token",
		"!": "not a page token",
		encode([]byte(`{"v":1,"k":"page","q":"` + strings.Repeat("a", maxToken) + `"}`)): "not a page token",
		page.Watch: "not a page token",
	} {
		_, err := s.List(Request{Query: mustParse(t, "web"), Limit: 1, Token: token}, everything, exampleClock)
		if _, ok := errors.AsType[*TokenError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", token, err, want)
		}
	}
	if _, err := s.List(Request{Query: mustParse(t, "db"), Limit: 1, Token: page.Next}, everything, exampleClock); !errors.Is(err, errOtherQuery) {
		t.Error(err)
	}
	if _, err := m.Since(page.Next); err == nil || !strings.Contains(err.Error(), "not a watch token") {
		t.Error(err)
	}
}

func TestCount_GroupsByAnyField(t *testing.T) {
	s := example().Snapshot()
	for by, want := range map[string]string{
		"":           "5:",
		"health":     "5: Healthy=2 Degraded=1 Progressing=1 Unknown=1",
		"agent":      "5: a=2 =1 b=1 c=1",
		"image":      "5: =2 docker.io/library/nginx:1.19.0=1 docker.io/library/nginx:1.25.3=1 postgres:16=1 redis:7=1",
		"label.team": "5: =3 blue=1 red team=1",
		"freshness":  "5: =2 < 1m=2 < 1d=1",
		"changed":    "5: < 10m=2 =1 < 1d=1 < 7d=1",
		"revision":   "5: " + commit + "=3 =1 main=1 v2=1",
	} {
		c, err := s.Count(Query{}, by, 10, everything, exampleClock)
		got := fmt.Sprint(c.Total, ":")
		got = strings.ReplaceAll(got, " ", "")
		for _, g := range c.Groups {
			got += fmt.Sprintf(" %s=%d", g.Value, g.Count)
		}
		if err != nil || got != want {
			t.Errorf("by %q: %q, want %q, %v", by, got, want, err)
		}
	}
	c, err := s.Count(Query{}, "health", 2, everything, exampleClock)
	if err != nil || len(c.Groups) != 2 || c.More != 2 {
		t.Error(c, err)
	}
	if _, err := s.Count(Query{}, "x", 2, everything, exampleClock); err == nil {
		t.Error("unknown field is accepted")
	}
}

func TestScope_HidesFromListsCountsGroupsAndWatches(t *testing.T) {
	m := example()
	start, err := m.Snapshot().List(Request{Limit: 10}, everything, exampleClock)
	if err != nil {
		t.Fatal(err)
	}
	m.Delete(Key{"b", "web"})
	m.Delete(Key{"a", "db"})
	m.Set(Application{Namespace: "c", Name: "cache", Agent: "c", Project: "infra", Health: "Healthy"})
	m.Set(Application{Namespace: "a", Name: "new", Agent: "a", Project: "shop"})
	m.Set(Application{Namespace: "a", Name: "secret", Agent: "a", Project: "infra"})
	changes, err := m.Since(start.Watch)
	if err != nil {
		t.Fatal(err)
	}
	s := m.Snapshot()
	for _, test := range []struct {
		name                            string
		scope                           Scope
		list, groups, changed, removals string
	}{
		{"agent a, project shop", Scope{Namespace: Any, Project: is("shop"), Agent: is("a")}, "a/new a/web", "[{a 2}]", "a/new", "[{a db}]"},
		{"namespace c", Scope{Namespace: is("c"), Project: Any, Agent: Any}, "c/cache", "[{c 1}]", "c/cache", "[]"},
		{"one Application", Scope{Namespace: Any, Project: Any, Agent: Any, Only: &Key{"a", "web"}}, "a/web", "[{a 1}]", "", "[]"},
		{"nothing", nothing, "", "[]", "", "[]"},
		{"no agent", Scope{Namespace: Any, Project: Any, Agent: is("")}, "argocd/hub", "[{ 1}]", "", "[]"},
		{"no namespace", Scope{Project: Any, Agent: Any}, "", "[]", "", "[]"},
		{"no project", Scope{Namespace: Any, Agent: Any}, "", "[]", "", "[]"},
		{"agents unknown", Scope{Namespace: Any, Project: Any}, "", "[]", "", "[]"},
	} {
		page, err := s.List(Request{Limit: 10}, test.scope, exampleClock)
		if got := namesOf(page); err != nil || got != test.list || page.Total != len(page.Items) {
			t.Errorf("%s: list %q, total %d, %v", test.name, got, page.Total, err)
		}
		counts, err := s.Count(Query{}, "agent", 10, test.scope, exampleClock)
		if got := fmt.Sprint(counts.Groups); err != nil || got != test.groups || counts.Total != page.Total {
			t.Errorf("%s: groups %s of %d, %v", test.name, got, counts.Total, err)
		}
		update := changes.Update(Query{}, test.scope, exampleClock)
		if got := namesOf(Page{Items: update.Changed}); got != test.changed || fmt.Sprint(update.Removed) != test.removals {
			t.Errorf("%s: changed %q, removed %v", test.name, got, update.Removed)
		}
	}
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

func TestWatch_ReportsChangesOfResult(t *testing.T) {
	m := example()
	token := watchFrom(t, m)
	step := func(change func(), changed, removed string) {
		t.Helper()
		change()
		c, err := m.Since(token)
		if err != nil {
			t.Fatal(err)
		}
		u := c.Update(mustParse(t, "health=Degraded"), everything, exampleClock)
		if got := namesOf(Page{Items: u.Changed}); got != changed || fmt.Sprint(u.Removed) != removed {
			t.Errorf("changed %q, removed %v; want %q, %s", got, u.Removed, changed, removed)
		}
		token = u.Watch
	}
	db := Application{Namespace: "a", Name: "db", Agent: "a", Project: "shop", Health: "Healthy"}
	step(func() { m.Set(db) }, "", "[{a db}]")
	step(func() { db.Sync = "Synced"; m.Set(db) }, "", "[]") // was and is not in the result
	step(func() { db.Health = "Degraded"; m.Set(db) }, "a/db", "[]")
	step(func() { m.Set(db) }, "", "[]") // the same
	step(func() { m.SetAgent(Key{"a", "db"}, "z") }, "a/db", "[]")
	step(func() { m.SetAgent(Key{"a", "db"}, "z"); m.SetAgent(Key{"no", "such"}, "z") }, "", "[]")
	step(func() { m.Delete(Key{"a", "db"}); m.Delete(Key{"a", "db"}) }, "", "[{a db}]")
	step(func() { m.Set(db); m.Delete(Key{"a", "db"}) }, "", "[]")
	step(func() { m.Set(db); db.Health = "Healthy"; m.Set(db); db.Health = "Degraded"; m.Set(db) }, "a/db", "[]")
	step(func() { m.Keep("a", func(k Key) bool { return k == Key{"a", "web"} }) }, "", "[{a db}]")
}

func watchFrom(t *testing.T, m *Model) string {
	t.Helper()
	page, err := m.Snapshot().List(Request{Limit: 1}, everything, exampleClock)
	if err != nil {
		t.Fatal(err)
	}
	return page.Watch
}

func TestWatch_StartsAgainIfTokenIsTooOldOrOfAnotherModel(t *testing.T) {
	m := example()
	first := watchFrom(t, m)
	a := Application{Namespace: "a", Name: "web"}
	for i := range MaxChanges {
		a.Health = fmt.Sprint(i)
		m.Set(a)
	}
	if c, err := m.Since(first); err != nil || len(c.changes) != MaxChanges {
		t.Errorf("%d changes, %v", len(c.changes), err)
	}
	last := watchFrom(t, m)
	a.Health = "one more"
	m.Set(a)
	if _, err := m.Since(first); !errors.Is(err, ErrStartAgain) {
		t.Error(err)
	}
	if c, err := m.Since(last); err != nil || len(c.changes) != 1 || c.changes[0].after.single[healthAt].value != "one more" {
		t.Errorf("%+v, %v", c, err)
	}
	other := NewModel("other")
	if _, err := other.Since(first); !errors.Is(err, ErrStartAgain) {
		t.Error(err)
	}
	ahead := encodeToken(watchToken{Version: tokenVersion, Kind: "watch", Instance: "test", Sequence: 1 << 60})
	if _, err := m.Since(ahead); !errors.Is(err, ErrStartAgain) {
		t.Error(err)
	}
}

func TestModel_ReleasesTextsOfRemovedRows(t *testing.T) {
	m := example()
	snapshot := m.Snapshot()
	m.SetAgent(Key{"a", "web"}, "z")
	m.Set(Application{Namespace: "a", Name: "web", Agent: "z", Images: []string{"x", "x"}, Labels: map[string]string{"k": "v"}})
	m.Keep("", func(Key) bool { return false })
	if len(m.texts) != 0 || m.Len() != 0 || len(m.at) != 0 {
		t.Errorf("%d texts, %d rows, %d keys remain", len(m.texts), m.Len(), len(m.at))
	}
	page, err := snapshot.List(Request{Query: mustParse(t, "image~nginx:1.2"), Limit: 10}, everything, exampleClock)
	if err != nil || namesOf(page) != "a/web" || page.Items[0].Labels["team"] != "blue" || !page.Items[0].InSync.Equal(now.Add(-10*time.Second)) {
		t.Errorf("the snapshot has changed: %+v, %v", page, err)
	}
}

func TestSnapshot_NamespacesAndTheirAgents(t *testing.T) {
	s := example().Snapshot()
	namespaces := s.Namespaces()
	slices.Sort(namespaces)
	if got := fmt.Sprint(namespaces, s.AgentsIn(Any), s.AgentsIn(is("b")), s.AgentsIn(is("argocd"))); got != "[a argocd b c] [a b c] [b] []" {
		t.Error(got)
	}
}

func TestReadApplication(t *testing.T) {
	read := func(text string) Application {
		t.Helper()
		o, err := kind.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return ReadApplication(o)
	}
	const head = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"a","name":"web","uid":"1","resourceVersion":"1","creationTimestamp":"2026-11-01T00:00:00Z","labels":{"team":"blue"}},`
	got := read(head + `"spec":{"project":"shop","sources":[{"repoURL":"https://git","targetRevision":"main"},{"repoURL":"https://charts","chart":"nginx","targetRevision":"15.*"}]},
		"status":{"health":{"status":"Healthy","lastTransitionTime":"2026-11-02T00:00:00Z"},"sync":{"status":"Synced","revisions":["abc","15.4.1"]},
		"history":[{"revisions":["old","15.0.0"],"deployedAt":"2026-11-03T00:00:00Z"}],"operationState":{"phase":"Succeeded","finishedAt":"2026-11-04T00:00:00+01:00"},
		"summary":{"images":["nginx:1"]},"conditions":[{"type":"B"},{"type":"A","lastTransitionTime":"never"},{"type":"B"}]}}`)
	want := `{a web  shop Healthy Synced Succeeded [abc 15.4.1] [nginx:1] [nginx:15.4.1] [https://charts https://git] [A B] map[team:blue] 2026-11-03 23:00:00 +0000 UTC 0001-01-01 00:00:00 +0000 UTC false}`
	if text := fmt.Sprint(got); text != want {
		t.Errorf("\n%s\nwant\n%s", text, want)
	}
	got = read(head + `"spec":{"source":{"repoURL":"r","chart":"c","targetRevision":"1.*"}},"status":{"sync":{"status":"OutOfSync","revision":"1.3"},"history":[{"revision":"1.1"},{"revision":"1.2"}]}}`)
	if fmt.Sprintf("%s %s %s %s", got.Revisions, got.Charts, got.Health, got.Project) != "[1.2] [c:1.2] Unknown default" {
		t.Errorf("an Application that is not in sync is on its deployed revision: %+v", got)
	}
	images := strings.TrimSuffix(strings.Repeat(`"i",`, maxImages+1), ",")
	if got = read(head + `"status":{"summary":{"images":[` + images + `]}}}`); len(got.Images) != maxImages || !got.Truncated {
		t.Errorf("%d images, truncated %t", len(got.Images), got.Truncated)
	}
	if got = read(head + `"status":{"health":{"status":"` + strings.Repeat("ä", maxText) + `"}}}`); len(got.Health) != maxText || !got.Truncated || strings.Contains(got.Health, "\ufffd") {
		t.Errorf("%d bytes, truncated %t", len(got.Health), got.Truncated)
	}
}
