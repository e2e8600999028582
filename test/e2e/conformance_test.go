package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// conformanceRow is a command of the argocd CLI. It must have the same exit code and an equivalent output for an
// Application of Argo CD's own controller and for one of an agent.
type conformanceRow struct {
	name       string                // as in docs/compatibility.md
	prepare    func(*conformanceApp) // before the command
	args       []string              // APP stands for the Application; a row without APP gets it as the last argument
	editor     string                // script of EDITOR
	compare    func(string) string   // part of the output that must be equal; if nil, all of it
	check      func(*conformanceApp) // of the cluster, after the command
	autonomous autonomousResult      // what differs for an autonomous agent
}

// autonomousResult is the result of a command for an Application of an autonomous agent.
type autonomousResult uint8

const (
	sameForAutonomous autonomousResult = iota
	ownedBySpoke                       // it changes the spec, which the spoke owns: the hub undoes it
	limitedByPolicy                    // the AgentPolicy of the spoke does not allow it by default
)

// conformanceApp is one of the compared Applications. They have equal repositories with equal histories.
type conformanceApp struct {
	*testing.T
	w *testEnv
	commanded
	url     string
	folder  string            // a clone of its repository for --local
	replace *strings.Replacer // of what is specific to it
}

// TestConformance_CommandsBehaveAsWithLocalController runs the same commands for an Application that the controller of
// the hub deploys, for one of a managed and for one of an autonomous agent, and compares.
func TestConformance_CommandsBehaveAsWithLocalController(t *testing.T) {
	w := liveEnv(t)
	w.runHubController(t)
	w.hub.secret("direct-conformance").create(t, directCluster(t, "direct-conformance", w.managed().spoke))
	name := "conformance-" + now()
	local := newConformanceApp(t, w, "", name)
	agents := map[string]*conformanceApp{"managed": newConformanceApp(t, w, "managed", name), "autonomous": newConformanceApp(t, w, "autonomous", name)}
	for _, row := range conformanceRows {
		t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
			wanted := local.run(t, row)
			for _, mode := range []string{"managed", "autonomous"} {
				if mode == "autonomous" && row.autonomous == ownedBySpoke {
					continue
				}
				got := agents[mode].run(t, row)
				if mode == "autonomous" && row.autonomous == limitedByPolicy {
					if got.exit == 0 || !strings.Contains(got.all, "policy (operations) forbids it") {
						t.Errorf("%s: exit code %d. The hub can do this without a policy that allows it:\n%s", mode, got.exit, got.all)
					}
					continue
				}
				if got.exit != wanted.exit {
					t.Errorf("%s: exit code %d instead of %d\n%s\n--- local\n%s", mode, got.exit, wanted.exit, got.all, wanted.all)
				} else if diff := cmp.Diff(wanted.text, got.text); diff != "" {
					t.Errorf("%s: the output differs (- local, + agent):\n%s", mode, diff)
				}
			}
		})
	}
}

// TestConformance_DocsNameEveryCommand compares the table of the docs with the tested commands.
func TestConformance_DocsNameEveryCommand(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range conformanceRows {
		result := map[autonomousResult]string{sameForAutonomous: "same", ownedBySpoke: "owned by the workload cluster", limitedByPolicy: "refused by default"}[row.autonomous]
		if line := fmt.Sprintf("| `%s` | same | %s |", row.name, result); !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/compatibility.md lacks\n%s", line)
		}
	}
}

func newConformanceApp(t *testing.T, w *testEnv, mode, name string) *conformanceApp {
	t.Helper()
	a := &conformanceApp{w: w}
	if mode != "" {
		a.commanded = newCommanded(t, w, mode, name)
	} else {
		repo, url := w.repository(t, gitserver.SamplePlain)
		own := name + "-local"
		a.commanded = commanded{name: lab.ArgoCDNamespace + "/" + own, hub: w.hub.app(lab.ArgoCDNamespace, own), repo: repo, target: own,
			workload: w.managed().spoke.object(configMaps, own, "guestbook")}
		a.hub.create(t, appSpec{repo: url, destination: "direct-conformance", namespace: own, cascade: true}.object())
		a.hub.becomes(t, outOfSync)
	}
	u := a.hub.get(t)
	a.url = at(u, "spec.source.repoURL")
	a.folder = t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "-c", "http.sslVerify=false", "clone", "--quiet", a.url, a.folder).CombinedOutput(); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	a.replace = strings.NewReplacer("autonomous-default", "default", a.hub.namespace+"_"+a.hub.name, "APP", a.name, "NAMESPACE/APP", a.url, "URL", a.folder, "FOLDER", a.hub.name, "APP", a.target, "TARGET",
		at(u, "spec.destination.name"), "CLUSTER", "namespace="+a.hub.namespace, "namespace=NAMESPACE")
	return a
}

type conformanceResult struct {
	exit      int
	all, text string
}

func (a *conformanceApp) run(t *testing.T, row conformanceRow) conformanceResult {
	t.Helper()
	a.T = t
	if row.prepare != nil {
		row.prepare(a)
	}
	args := []string{"app"}
	named := false
	for _, arg := range row.args {
		named = named || strings.Contains(arg, "APP")
		args = append(args, strings.NewReplacer("APP", a.name, "FOLDER", a.folder, "URL", a.url, "SHA", a.head(t)).Replace(arg))
	}
	if !named {
		args = append(args, a.name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	cmd := a.w.Command(ctx, "argocd", args...)
	if row.editor != "" {
		script := filepath.Join(t.TempDir(), "editor")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+row.editor+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Environ(), "EDITOR="+script)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.causeEvents(ctx, t)
	}()
	out, err := cmd.CombinedOutput()
	timeout := ctx.Err()
	cancel()
	<-ended
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) || timeout != nil {
		t.Fatalf("argocd %s: %v, %v\n%s", strings.Join(args, " "), err, timeout, out)
	}
	r := conformanceResult{exit: cmd.ProcessState.ExitCode(), all: string(out)}
	r.text = r.all
	if row.compare != nil {
		r.text = row.compare(r.text)
	}
	r.text = withoutInstances(a.replace.Replace(r.text))
	defer func() {
		if t.Failed() {
			t.Logf("argocd %s: exit code %d\n%s", strings.Join(args, " "), r.exit, r.all)
		}
	}()
	if row.check != nil && (a.hub.namespace != "autonomous" || row.autonomous == sameForAutonomous) {
		row.check(a)
	}
	return r
}

// causeEvents refreshes the Application while a command waits although the hub has everything that it waits for. argocd-server
// subscribes to events after it has sent the first state. If the last event comes in between, the command waits for another one,
// also for an Application of Argo CD's own controller.
func (a *conformanceApp) causeEvents(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(15 * time.Second):
		}
		u, err := a.hub.tryGet()
		if err != nil || u == nil || noOperation(u) != nil || u.GetAnnotations()["argocd.argoproj.io/refresh"] != "" {
			continue
		}
		finished, _, _ := unstructured.NestedString(u.Object, "status", "operationState", "finishedAt")
		compared, _, _ := unstructured.NestedString(u.Object, "status", "reconciledAt")
		if finished == "" || compared < finished { // both are UTC, in seconds
			continue
		}
		t.Log("the command waits for an event that it has missed")
		const refresh = `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`
		if _, err := a.hub.in().Patch(ctx, a.hub.name, types.MergePatchType, []byte(refresh), metav1.PatchOptions{}); err != nil {
			t.Log(err)
		}
	}
}

// instances is what two equal Applications do not have in common.
var instances = []struct {
	text *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "SHA"},
	{regexp.MustCompile(`\([0-9a-f]{7}\)`), "(SHA)"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?( [+-]\d{4} UTC)?( UTC)?`), "TIME"},
	{regexp.MustCompile(`resourceVersion: "\d+"`), "resourceVersion"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s\b`), "DURATION"},
	{regexp.MustCompile(`guestbook-[0-9a-z]{6,10}(-[0-9a-z]{5})?`), "guestbook-HASH"},
	{regexp.MustCompile(`https?://[^\s/]+/`), "SERVER/"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`[ \t]+\n`), "\n"},
}

func withoutInstances(text string) string {
	for _, i := range instances {
		text = i.text.ReplaceAllString(text, i.name)
	}
	return text
}

// lines keeps the lines that match a pattern.
func lines(pattern string) func(string) string {
	wanted := regexp.MustCompile(pattern)
	return func(text string) string {
		var kept []string
		for line := range strings.Lines(text) {
			if wanted.MatchString(line) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// treeNodes compares the nodes of a tree without their order. Endpoints are added by another controller, at some time.
func treeNodes(text string) string {
	return sorted(lines(`(Deployment|ReplicaSet|Pod|ConfigMap|Service)/`)(text))
}

// toMultiSource turns the source into a list of sources.
func toMultiSource(u *unstructured.Unstructured) {
	source, _, _ := unstructured.NestedMap(u.Object, "spec", "source")
	unstructured.RemoveNestedField(u.Object, "spec", "source")
	set(u, "spec.sources", []any{source})
}

// anything compares only the exit code.
func anything(string) string { return "" }

// outcome keeps what a sync or rollback prints of its end. The lines before it depend on when events arrive.
func outcome(text string) string {
	_, end, found := strings.Cut(text, "\nName: ")
	if !found {
		return text
	}
	return lines(`^(Operation|Phase|Message|Target|Path):`)(end)
}

// head returns the newest commit. The hub's repo-server remembers for minutes to which commit a branch pointed.
func (a *conformanceApp) head(t *testing.T) string {
	t.Helper()
	sha, err := a.repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	return sha
}

func (a *conformanceApp) commit(files map[string]string, options ...gitserver.Option) {
	a.Helper()
	commit(a.T, a.repo, files, options...)
	a.pull()
}

func (a *conformanceApp) pull() {
	a.Helper()
	if out, err := exec.CommandContext(a.Context(), "git", "-c", "http.sslVerify=false", "-C", a.folder, "pull", "--quiet").CombinedOutput(); err != nil {
		a.Fatalf("pull: %v\n%s", err, out)
	}
}

// drift changes the live ConfigMap, and waits until the controller has seen it.
func (a *conformanceApp) drift() {
	a.Helper()
	a.workload.patch(a.T, `{"data":{"GREETING":"drift"}}`)
	a.hub.becomes(a.T, outOfSync)
}

func greeting(wanted string) func(*conformanceApp) {
	return func(a *conformanceApp) {
		a.Helper()
		a.workload.becomes(a.T, field("data.GREETING", wanted))
	}
}

// The rows run in this order, and each starts from what the rows before it left.
var conformanceRows = []conformanceRow{
	{name: "app get", args: []string{"get"}},
	{name: "app get --refresh", args: []string{"get", "--refresh"}},
	{name: "app get --hard-refresh", args: []string{"get", "--hard-refresh"}},
	{name: "app manifests", args: []string{"manifests"}},
	{name: "app diff", args: []string{"diff"}},
	{name: "app history", args: []string{"history"}},
	{name: "app terminate-op", args: []string{"terminate-op"}}, // nothing runs
	{name: "app sync --dry-run", args: []string{"sync", "--dry-run"}, compare: outcome},
	{name: "app sync --resource", args: []string{"sync", "--resource", ":ConfigMap:guestbook"}, compare: outcome, check: greeting("hello")},
	{name: "app sync", args: []string{"sync"}, compare: outcome},
	{name: "app wait", args: []string{"wait", "--sync", "--health", "--operation", "--timeout", "120"}, compare: anything},
	{name: "app get -o tree", args: []string{"get", "-o", "tree"}, compare: treeNodes},
	{name: "app resources", args: []string{"resources"}},
	{name: "app resources --orphaned", args: []string{"resources", "--orphaned"}},
	{name: "app manifests --source live", args: []string{"manifests", "--source", "live"}, compare: lines(`^(kind|  name|  GREETING|  replicas):`)},
	{name: "app get-resource", args: []string{"get-resource", "APP", "--kind", "ConfigMap", "--resource-name", "guestbook", "--filter-fields", "data"}},
	{name: "app logs", args: []string{"logs", "--tail", "1"}, compare: anything},
	{name: "app actions list", args: []string{"actions", "list", "APP", "--kind", "Deployment"}, compare: sorted},
	{name: "app actions run", args: []string{"actions", "run", "APP", "restart", "--kind", "Deployment"}},
	{name: "app diff after a change in Git", prepare: func(a *conformanceApp) {
		a.commit(map[string]string{"configmap.yaml": configMapManifest("guestbook", "second")})
	}, args: []string{"diff", "--refresh"}},
	{name: "app diff --revision", args: []string{"diff", "--revision", "SHA"}},
	{name: "app diff --local", args: []string{"diff", "APP", "--local", "FOLDER", "--local-repo-root", "FOLDER"}, compare: lines(`^[<>]   `)},
	{name: "app diff --server-side-diff", args: []string{"diff", "--server-side-diff"}},
	{name: "app sync to a new revision", args: []string{"sync"}, compare: outcome, check: greeting("second")},
	{name: "app history with two entries", args: []string{"history"}},
	{name: "app diff after a live change", prepare: (*conformanceApp).drift, args: []string{"diff"}},
	{name: "app sync --force", args: []string{"sync", "--force"}, compare: outcome, check: greeting("second"), autonomous: limitedByPolicy},
	{name: "app rollback", args: []string{"rollback", "APP", "0"}, compare: outcome, check: greeting("hello")},
	{name: "app rollback to an unknown entry", args: []string{"rollback", "APP", "77"}},
	{name: "app patch-resource", args: []string{"patch-resource", "APP", "--kind", "ConfigMap", "--resource-name", "guestbook",
		"--patch", `{"data":{"GREETING":"patched"}}`, "--patch-type", "application/merge-patch+json"}, check: greeting("patched")},
	{name: "app delete-resource", args: []string{"delete-resource", "APP", "--kind", "ConfigMap", "--resource-name", "guestbook"}, check: func(a *conformanceApp) {
		a.workload.goes(a.T)
	}},
	{name: "app sync after a deletion", args: []string{"sync"}, compare: outcome, check: greeting("second")},
	{name: "app sync --local", prepare: func(a *conformanceApp) {
		if err := os.WriteFile(filepath.Join(a.folder, "configmap.yaml"), []byte(configMapManifest("guestbook", "local")), 0o600); err != nil {
			a.Fatal(err)
		}
	}, args: []string{"sync", "APP", "--local", "FOLDER", "--local-repo-root", "FOLDER"}, compare: outcome, autonomous: limitedByPolicy},
	{name: "app set --sync-option", args: []string{"set", "APP", "--sync-option", "ApplyOutOfSyncOnly=true"}, autonomous: ownedBySpoke},
	{name: "app set --path of a missing folder", args: []string{"set", "APP", "--path", "absent"}, autonomous: ownedBySpoke},
	{name: "app set --revision", args: []string{"set", "APP", "--revision", "main", "--path", "."}, autonomous: ownedBySpoke},
	{name: "app patch", args: []string{"patch", "APP", "--patch", `{"spec":{"revisionHistoryLimit":5}}`, "--type", "merge"}, compare: lines(`revisionHistoryLimit`), autonomous: ownedBySpoke},
	{name: "app edit", args: []string{"edit"}, editor: `sed -i 's/revisionHistoryLimit: 5/revisionHistoryLimit: 6/' "$1"`, check: func(a *conformanceApp) {
		a.hub.is(a.T, field("spec.revisionHistoryLimit", "6"))
	}, autonomous: ownedBySpoke},
	{name: "app add-source", args: []string{"add-source", "APP", "--repo", "URL", "--path", "extra", "--revision", "main"}, prepare: func(a *conformanceApp) {
		commit(a.T, a.repo, map[string]string{"extra/extra.yaml": configMapManifest("extra", "extra")})
		a.hub.edit(a.T, toMultiSource)
	}, autonomous: ownedBySpoke},
	{name: "app sync of several sources", args: []string{"sync"}, compare: outcome, check: func(a *conformanceApp) {
		a.workload.site.object(configMaps, a.target, "extra").becomes(a.T, field("data.GREETING", "extra"))
	}, autonomous: ownedBySpoke},
	{name: "app manifests of several sources", args: []string{"manifests"}, autonomous: ownedBySpoke},
	{name: "app diff of several sources", args: []string{"diff", "APP", "--revisions", "main", "--source-positions", "1"}, autonomous: ownedBySpoke},
	{name: "app remove-source", args: []string{"remove-source", "APP", "--source-position", "2"}, autonomous: ownedBySpoke},
	{name: "app sync --prune", args: []string{"sync", "--prune"}, compare: outcome, check: func(a *conformanceApp) {
		a.workload.site.object(configMaps, a.target, "extra").goes(a.T)
	}, autonomous: ownedBySpoke},
	{name: "app sync --prune of an unknown Application", args: []string{"sync", "APP-absent", "--prune"}},
	{name: "app delete", args: []string{"delete", "APP", "--yes", "--wait"}, check: func(a *conformanceApp) {
		a.hub.goes(a.T)
		a.workload.goes(a.T)
	}, autonomous: ownedBySpoke},
}
