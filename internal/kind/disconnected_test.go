package kind

import (
	"strings"
	"testing"
	"time"
)

var outage = Disconnection{Agent: "one", Since: day, HideHealth: true, Notice: true}

const (
	replicaMarks = `"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/agent-name":"one"`
	outageText   = "Agent one has been disconnected since 2026-01-01T00:00:00Z. Status and resources are those of that time."
)

// application returns a hub's Application of agent one with these annotations and this status.
func application(t *testing.T, annotations, status string) *Object {
	t.Helper()
	if annotations != "" {
		annotations = `,"annotations":{` + annotations + `}`
	}
	return object(t, `{"metadata":{"name":"a","namespace":"one-ns","uid":"u"`+annotations+`},
		"spec":{"project":"one-p","destination":{"name":"one"}},"status":`+status+`}`)
}

func TestDisconnected_IsNotReplicatedAndIsRemovedCompletely(t *testing.T) {
	const theirs = `{"type":"SyncError","message":"x"}`
	for name, c := range map[string]struct{ annotations, status string }{
		"healthy":                         {replicaMarks, `{"health":{"status":"Healthy","lastTransitionTime":"2025-12-01T00:00:00Z"},"sync":{"status":"Synced"},"unknown":[1.0]}`},
		"without health":                  {replicaMarks, `{"sync":{"status":"OutOfSync"}}`},
		"without a status":                {replicaMarks, `{}`},
		"health without a status":         {replicaMarks, `{"health":{}}`},
		"unknown health":                  {replicaMarks, `{"health":{"status":"Unknown"}}`},
		"degraded with a message":         {replicaMarks, `{"health":{"status":"Degraded","message":"a \"quoted\"\nline","future":1.0}}`},
		"with conditions":                 {replicaMarks, `{"health":{"status":"Healthy"},"conditions":[` + theirs + `,{"type":"AgentError","message":"y"}]}`},
		"with annotations":                {replicaMarks + `,"team":"a"`, `{"health":{"status":"Healthy"}}`},
		"with a notice of a user":         {replicaMarks + `,"notice.argocd.argoproj.io/content":"Maintenance"`, `{"health":{"status":"Healthy"}}`},
		"with a severity and no text":     {replicaMarks + `,"notice.argocd.argoproj.io/severity":"critical"`, `{"health":{"status":"Healthy"}}`},
		"with a very large health":        {replicaMarks, `{"health":{"status":"Degraded","message":"` + strings.Repeat("x", maxLastHealth) + `"}}`},
		"with a revision":                 {replicaMarks, `{"health":{"status":"Healthy"},"sync":{"status":"Synced","revision":"abc"}}`},
		"with revisions":                  {replicaMarks, `{"health":{"status":"Healthy"},"sync":{"status":"Synced","revisions":["abc","def"]}}`},
		"with one revision in a list":     {replicaMarks, `{"health":{"status":"Unknown"},"sync":{"status":"Synced","revision":"abc","revisions":["abc"]}}`},
		"with an empty list of revisions": {replicaMarks, `{"health":{"status":"Healthy"},"sync":{"revision":"abc","revisions":[]}}`},
		"without annotations":             {``, `{"health":{"status":"Healthy"}}`},
		"with a refresh that is pending":  {replicaMarks + `,"argocd.argoproj.io/refresh":"normal"`, `{"health":{"status":"Progressing"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := application(t, c.annotations, c.status)
			for _, d := range []Disconnection{outage, {Agent: "one", Since: day}, {Agent: "one", Since: day, HideHealth: true}, {Agent: "one", Since: day, Notice: true}} {
				shown := ShowDisconnected(before, d)
				if !ShowsDisconnected(shown) || !strings.Contains(string(shown.Raw()), `"type":"AgentDisconnected"`) || !strings.Contains(string(shown.Raw()), outageText) {
					t.Errorf("not shown: %s", shown.Raw())
				}
				if again := ShowDisconnected(shown, d); again != shown {
					t.Errorf("written again:\n got %s\nwant %s", again.Raw(), shown.Raw())
				}
				if cleared := ClearDisconnected(shown); !Same(cleared, before) {
					t.Errorf("cleared:\n got %s\nwant %s", cleared.Raw(), before.Raw())
				}
				for _, w := range []*Env{managedHub(), autoHub()} {
					is, _ := StatusKind{}.ReadReplica(shown, w)
					was, ok := StatusKind{}.ReadReplica(before, w)
					if ok != (c.annotations != "" || w.Agent.Mode == Managed) {
						t.Fatalf("%s: status belongs to the agent: %v", w.Agent.Mode, ok)
					}
					expectJSON(t, "replicated status", orEmpty(is.Content), string(orEmpty(was.Content)))
				}
				is, _ := ApplicationKind{}.Publish(shown, managedHub())
				was, ok := ApplicationKind{}.Publish(before, managedHub())
				if !ok {
					t.Fatal("not published")
				}
				expectJSON(t, "sent to a managed agent", is.Content, string(was.Content))
				held, _ := ApplicationKind{}.ReadReplica(shown, autoHub())
				had, _ := ApplicationKind{}.ReadReplica(before, autoHub())
				expectJSON(t, "replica of an autonomous agent", held.Content, string(had.Content))
			}
			if ClearDisconnected(before) != before {
				t.Error("cleared although nothing is shown")
			}
		})
	}
}

func orEmpty(content []byte) []byte {
	if content == nil {
		return []byte("{}")
	}
	return content
}

func TestDisconnected_Shows(t *testing.T) {
	o := ShowDisconnected(application(t, "", `{"sync":{"status":"Synced","revision":"abc"},"health":{"status":"Healthy","lastTransitionTime":"2025-12-01T00:00:00Z"},"conditions":[{"type":"SyncError","message":"x"}]}`), outage)
	expectJSON(t, "status", o.Get("status"), `{"sync":{"status":"Synced","revision":"abc","revisions":["abc","agent-disconnected"]},"health":{"status":"Unknown","lastTransitionTime":"2026-01-01T00:00:00Z"},"conditions":[{"type":"SyncError","message":"x"},
		{"type":"AgentDisconnected","message":"`+outageText+`","lastTransitionTime":"2026-01-01T00:00:00Z"},
		{"type":"AgentLastHealth","message":"{\"lastTransitionTime\":\"2025-12-01T00:00:00Z\",\"status\":\"Healthy\"}","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`)
	expectJSON(t, "annotations", o.Get("metadata", "annotations"), `{"notice.argocd.argoproj.io/content":"`+outageText+`","notice.argocd.argoproj.io/severity":"warning",
		"argocd-agent.argoproj-labs.io/notice":"`+outageText+`"}`)

	later := ShowDisconnected(o, Disconnection{Agent: "one", Since: day.Add(time.Hour)})
	expectJSON(t, "status in the next outage, with another setting", later.Get("status"), `{"sync":{"status":"Synced","revision":"abc"},"health":{"status":"Healthy","lastTransitionTime":"2025-12-01T00:00:00Z"},"conditions":[{"type":"SyncError","message":"x"},
		{"type":"AgentDisconnected","message":"`+strings.Replace(outageText, "T00:", "T01:", 1)+`","lastTransitionTime":"2026-01-01T01:00:00Z"}]}`)
	if annotations := later.Annotations(); len(annotations) > 0 {
		t.Errorf("annotations without notices: %v", annotations)
	}
}

// What was set while the agent was disconnected is not lost.
func TestDisconnected_KeepsWhatOthersSetSince(t *testing.T) {
	o := ShowDisconnected(application(t, "", `{"health":{"status":"Healthy"}}`), outage)
	edited := object(t, strings.NewReplacer(`"status":"Unknown"`, `"status":"Suspended"`,
		`"notice.argocd.argoproj.io/content":"Agent one has`, `"notice.argocd.argoproj.io/content":"We know. Agent one has`).Replace(string(o.Raw())))
	if shown := ShowDisconnected(edited, Disconnection{Agent: "one", Since: day, Notice: true}); shown.Annotations()[noticeContent] != "We know. "+outageText {
		t.Errorf("a user's notice was replaced: %v", shown.Annotations())
	}
	cleared := ClearDisconnected(edited)
	expectJSON(t, "status", cleared.Get("status"), `{"health":{"status":"Suspended","lastTransitionTime":"2026-01-01T00:00:00Z"}}`)
	expectJSON(t, "annotations", cleared.Get("metadata", "annotations"), `{"notice.argocd.argoproj.io/content":"We know. `+outageText+`","notice.argocd.argoproj.io/severity":"warning"}`)
	if item, ok := (ApplicationKind{}).Publish(edited, managedHub()); !ok || ContentAnnotation(item.Content, noticeContent) == "" {
		t.Error("a user's notice is not replicated")
	}
}

func TestDisconnected_EndsWithTheNextStatus(t *testing.T) {
	o := ShowDisconnected(application(t, replicaMarks+`,"team":"a"`, `{"health":{"status":"Healthy"}}`), outage)
	merged := merge(t, StatusKind{}, o, named("a"), `{"status":{"health":{"status":"Unknown"},"conditions":[{"type":"AgentDisconnected","message":"x"},{"type":"AgentLastHealth","message":"{\"status\":\"Healthy\"}"}]}}`, managedHub())
	expectJSON(t, "status", merged.Get("status"), `{"health":{"status":"Unknown"}}`)
	if ShowsDisconnected(merged) || merged.Annotation("team") != "a" || merged.Annotation(noticeSeverity) != "" {
		t.Errorf("annotations %v", merged.Annotations())
	}
	item, _ := StatusKind{}.ReadReplica(merged, managedHub())
	expectJSON(t, "replicated status", item.Content, `{"status":{"health":{"status":"Unknown"}}}`)
}

func TestDisconnected_NeverComesFromASpoke(t *testing.T) {
	shown := ShowDisconnected(object(t, `{"metadata":{"name":"a","namespace":"argo","uid":"u",`+marked+`},"spec":{"project":"p"},"status":{"health":{"status":"Healthy"}}}`), outage)
	for _, w := range []*Env{managedSpoke(), autoSpoke()} {
		item, ok := StatusKind{}.Publish(shown, w)
		if !ok || strings.Contains(string(item.Content), "AgentDisconnected") || strings.Contains(string(item.Content), "AgentLastHealth") {
			t.Errorf("%s: %s", w.Agent.Mode, item.Content)
		}
	}
	if item, ok := (ApplicationKind{}).Publish(shown, autoSpoke()); !ok || strings.Contains(string(item.Content), NoticeAnnotation) {
		t.Errorf("%s", item.Content)
	}
}
