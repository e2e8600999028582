package appmetrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// placed has one agent, w1, for the Applications of namespace w1. Another replica reports w2.
type placed struct{}

func (placed) AgentOf(namespace, _ string) string {
	if namespace == "w1" || namespace == "w2" {
		return namespace
	}
	return ""
}

func (placed) Server(agent string) (string, bool) {
	return "https://hub:9090?agentName=" + agent, agent == "w1"
}

func application(t *testing.T, namespace, name, more string) *kind.Object {
	t.Helper()
	o, err := kind.Parse(fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":%q,"uid":"1","resourceVersion":"1"}%s}`, namespace, name, more))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func see(c *Collector, objects ...*kind.Object) {
	for _, o := range objects {
		c.Follow(reconcile.Observed{Resource: kind.Applications, Object: o})
	}
}

func text(c *Collector) string {
	var out strings.Builder
	for _, m := range c.Metrics() {
		for _, s := range m.Samples {
			fmt.Fprintf(&out, "%s %s %v\n", m.Name, strings.Join(s.Labels, " "), s.Value)
		}
	}
	return out.String()
}

func TestInfo_HasLabelsOfArgoCD(t *testing.T) {
	c := New(placed{})
	see(c,
		application(t, "w1", "a", `,"spec":{"project":"p","source":{"repoURL":"https://Git.example/Org/Repo.git"},"destination":{"namespace":"prod"},"syncPolicy":{"automated":{}}},`+
			`"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}},"operation":{"sync":{}}`),
		application(t, "w1", "b", `,"spec":{"sources":[{"repoURL":"git@git.example:org/repo"}],"destination":{},"syncPolicy":{"automated":{"enabled":false}}}`),
		application(t, "w2", "c", `,"spec":{}`), application(t, "argocd", "d", `,"spec":{}`))
	want := "argocd_app_info autosync_enabled true dest_namespace prod dest_server https://hub:9090?agentName=w1 health_status Healthy name a namespace w1 " +
		"operation sync project p repo https://git.example/org/repo sync_status Synced 1\n" +
		"argocd_app_info autosync_enabled false dest_namespace  dest_server https://hub:9090?agentName=w1 health_status Unknown name b namespace w1 " +
		"operation  project default repo git@git.example/org/repo sync_status Unknown 1\n"
	if got := text(c); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	c.Follow(reconcile.Deleted{Ref: kind.Ref{Resource: kind.Applications, Namespace: "w1", Name: "b"}})
	c.Follow(reconcile.List{Resource: kind.AppProjects})
	if got := text(c); strings.Count(got, "\n") != 1 {
		t.Errorf("a deleted Application has metrics:\n%s", got)
	}
	c.Follow(reconcile.List{Resource: kind.Applications})
	if got := text(c); got != "" {
		t.Errorf("after an empty list:\n%s", got)
	}
}

func TestSyncTotal_CountsEachOperationOnce(t *testing.T) {
	c := New(placed{})
	ended := func(at, phase, operation string) *kind.Object {
		return application(t, "w1", "a", fmt.Sprintf(`,"spec":{},"status":{"operationState":{"finishedAt":%q,"phase":%q,"operation":%s}}`, at, phase, operation))
	}
	before := ended("2026-01-01T00:00:00Z", "Succeeded", `{"sync":{}}`)
	second := ended("2026-01-01T00:01:00Z", "Failed", `{"sync":{"dryRun":true}}`)
	see(c, before, before, second, before, second) // a read may return an older state
	c.Follow(reconcile.List{Resource: kind.Applications, Objects: []*kind.Object{second}})
	see(c, application(t, "w1", "a", `,"spec":{},"status":{"operationState":{"phase":"Running"}}`), ended("2026-01-01T00:02:00Z", "Succeeded", `{"sync":{}}`),
		ended("2026-01-01T00:03:00Z", "invented", `{"sync":{}}`), ended("2026-01-01T00:04:00Z", "Succeeded", `{"sync":{}}`))
	_, got, _ := strings.Cut(text(c), "\n")
	line := func(dryRun, phase string, n int) string {
		return fmt.Sprintf("argocd_app_sync_total dest_server https://hub:9090?agentName=w1 dry_run %s name a namespace w1 phase %s project default %d\n", dryRun, phase, n)
	}
	if want := line("true", "Failed", 1) + line("false", "Succeeded", 2) + line("false", "Unknown", 1); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
