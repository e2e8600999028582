package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// These tests break clusters. They need no Argo CD: the tests write what its controller would write.

func bareEnv(t *testing.T, names ...string) *testEnv {
	t.Helper()
	var spokes []lab.Spoke
	for _, name := range names {
		spokes = append(spokes, lab.Spoke{Name: name, Role: lab.Managed})
	}
	return own(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: spokes}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
}

func simple(destination string) map[string]any {
	return appSpec{repo: "https://git.example/x", destination: destination, namespace: "x"}.object()
}

// snapshotBeforeCommand returns a snapshot of the hub with a command that has not run. Then the command runs.
func (w *testEnv) snapshotBeforeCommand(t *testing.T, onHub, onSpoke object) string {
	t.Helper()
	w.managed().freeze()
	onHub.patch(t, `{"operation":{"initiatedBy":{"username":"admin"},"sync":{"revision":"abc"}}}`)
	onHub.becomes(t, func(u *unstructured.Unstructured) error {
		if operation, _, _ := unstructured.NestedMap(u.Object, "operation"); commandOf(operation) == "" {
			return fmt.Errorf("the command has no ID yet")
		}
		return nil
	})
	snapshot := filepath.Join(t.TempDir(), "hub.db")
	if err := w.hub.Snapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	w.managed().thaw()
	onSpoke.becomes(t, operating)
	finishOperation(t, onSpoke)
	onHub.becomes(t, noOperation, phase("Succeeded"))
	return snapshot
}

func TestRestoredHub_DeletesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	w := bareEnv(t, "managed")
	spoke := w.managed().spoke
	grow := func(from, to int) {
		for i := from; i < to; i++ {
			w.hub.app("managed", fmt.Sprintf("app-%02d", i)).create(t, simple("managed"))
		}
		await(t, "all Applications on the spoke", func() error { return countIs(spoke, lab.ArgoCDNamespace, to, "", "") })
	}
	grow(0, 5)
	commandedApp := w.hub.app("managed", "app-00")
	commandedCopy := spoke.app(lab.ArgoCDNamespace, "app-00")
	snapshot := w.snapshotBeforeCommand(t, commandedApp, commandedCopy)
	grow(5, 12)
	for i := range 100 { // the snapshot is older
		commandedApp.patch(t, fmt.Sprintf(`{"metadata":{"labels":{"age":"%d"}}}`, i))
	}
	commandedCopy.becomes(t, label("age", "99"))

	mark := w.principal.logOffset(t)
	if err := w.hub.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if code := w.principal.wait(t); code == 0 { // its state is invalid, and Kubernetes restarts it
		t.Errorf("it ended as if all were well")
	}
	w.principal.waitForLog(t, mark, "restored from a backup")
	w.principal.start(t)
	line := w.principal.waitForLog(t, mark, "Deletions held", "confirm=", "store-")
	w.hub.app("managed", "after").create(t, simple("managed")) // new objects are still replicated
	spoke.app(lab.ArgoCDNamespace, "after").becomes(t)
	if err := countIs(spoke, lab.ArgoCDNamespace, 13, "", ""); err != nil {
		t.Errorf("Applications on the spoke: %v", err)
	}
	commandedCopy.is(t, noOperation)

	acceptRestored(t, w, mark, line, 6)
	commandedApp.becomes(t, noOperation, phase("Succeeded"))
	commandedCopy.is(t, noOperation)
}

// acceptRestored confirms that the hub was restored, and then the deletions of what it no longer has. The agent keeps want
// Applications.
func acceptRestored(t *testing.T, w *testEnv, mark int, line string, want int) {
	t.Helper()
	confirm(t, w, line)
	w.principal.waitForLog(t, mark, "Deletions no longer held")
	confirmed := 0
	await(t, "what the hub no longer has to leave", func() error {
		held := heldLines(w.principal.logged(t)[mark:]) // the missing items are listed and confirmed separately
		for ; confirmed < len(held); confirmed++ {
			confirm(t, w, held[confirmed])
		}
		return countIs(w.managed().spoke, lab.ArgoCDNamespace, want, "", "")
	})
}

// knownHub returns the revision and the history mark of the hub that an agent has recorded in its Lease.
func knownHub(t *testing.T, spoke *clusterClient) (revision, mark uint64) {
	t.Helper()
	list, err := spoke.object(leases, lab.ArgoCDNamespace, "").in().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list.Items {
		for key, out := range map[string]*uint64{"hub-store": &revision, "hub-mark": &mark} {
			if _, text, ok := strings.Cut(u.GetAnnotations()["argocd-agent.argoproj-labs.io/"+key], "/"); ok {
				number, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				*out = max(*out, number)
			}
		}
	}
	return revision, mark
}

// The hub is restored while its agent is offline, and then writes past the revision that the agent knows. Only the history mark
// shows the restore: nothing is deleted, and no command runs again, until a user confirms.
func TestRestoredHub_HasWrittenPastWhatItsAgentKnows(t *testing.T) {
	t.Parallel()
	w := bareEnv(t, "managed")
	spoke := w.managed().spoke
	marked := func(after uint64) (mark uint64) { // a new session makes the hub record a mark
		t.Helper()
		w.managed().restart(t)
		w.connected(t)
		await(t, "the agent to know a later history mark", func() error {
			if _, mark = knownHub(t, spoke); mark <= after {
				return fmt.Errorf("it knows %d", mark)
			}
			return nil
		})
		return mark
	}
	for _, name := range []string{"first", "second"} {
		w.hub.app("managed", name).create(t, simple("managed"))
		spoke.app(lab.ArgoCDNamespace, name).becomes(t)
	}
	before := marked(0)
	commandedApp, commandedCopy := w.hub.app("managed", "first"), spoke.app(lab.ArgoCDNamespace, "first")
	snapshot := w.snapshotBeforeCommand(t, commandedApp, commandedCopy)
	for _, name := range []string{"late-1", "late-2", "late-3"} {
		w.hub.app("managed", name).create(t, simple("managed"))
		spoke.app(lab.ArgoCDNamespace, name).becomes(t)
	}
	marked(before)
	w.managed().kill(t)
	known, _ := knownHub(t, spoke)

	mark := w.principal.logOffset(t)
	w.principal.kill(t)
	if err := w.hub.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	writes := w.hub.configMap("writes")
	writes.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
	for i := 0; ; i++ { // of other users
		writes.patch(t, fmt.Sprintf(`{"data":{"number":"%d"}}`, i))
		if revision, err := strconv.ParseUint(writes.get(t).GetResourceVersion(), 10, 64); err != nil || revision > known+10 {
			break
		}
	}
	w.principal.start(t)
	w.managed().start(t)
	w.connected(t)
	line := w.principal.waitForLog(t, mark, "Deletions held", "confirm=", "store-")
	w.hub.app("managed", "after").create(t, simple("managed")) // new objects are still replicated
	spoke.app(lab.ArgoCDNamespace, "after").becomes(t)
	if err := countIs(spoke, lab.ArgoCDNamespace, 6, "", ""); err != nil {
		t.Errorf("Applications on the spoke: %v", err)
	}
	commandedCopy.is(t, noOperation)

	acceptRestored(t, w, mark, line, 3)
	commandedApp.becomes(t, noOperation, phase("Succeeded"))
	commandedCopy.is(t, noOperation)
}

// finishOperation writes what the Argo CD controller writes at the end of a sync.
func finishOperation(t *testing.T, app object) {
	t.Helper()
	app.edit(t, func(u *unstructured.Unstructured) {
		operation := u.Object["operation"]
		delete(u.Object, "operation")
		set(u, "status.operationState", map[string]any{"phase": "Succeeded", "operation": operation,
			"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"})
		set(u, "status.sync", map[string]any{"status": "Synced"})
	})
}

var command = regexp.MustCompile(`argocd-agent\.argoproj-labs\.io/confirm=([^\s"\\]+)`)

// confirm runs the command in the log.
func confirm(t *testing.T, w *testEnv, line string) {
	t.Helper()
	confirmFor(t, w, "managed", line)
}

func confirmFor(t *testing.T, w *testEnv, agent, line string) {
	t.Helper()
	found := command.FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("the log names no command that confirms: %s", line)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		"argocd-agent.argoproj-labs.io/confirm": found[1]}}})
	if err != nil {
		t.Fatal(err)
	}
	w.hub.agent(agent).patch(t, string(patch))
}

func heldLines(log string) []string {
	var lines []string
	for line := range strings.Lines(log) {
		if containsAll(line, []string{"Deletions held until", "confirm="}) && !strings.Contains(line, "store-") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestClonedCluster_IsRefusedUntilConfirmed(t *testing.T) {
	t.Parallel()
	whole := t
	w := bareEnv(t, "managed", "spare")
	w.hub.app("managed", "before").create(t, simple("managed"))
	w.managed().spoke.app(lab.ArgoCDNamespace, "before").becomes(t)
	first := w.managed()
	spare := w.addAgent(t, agentSetup{name: "managed", cluster: "spare", mode: "managed"}) // a clone: the same name in its certificate
	t.Cleanup(func() { first.signal(9) })

	t.Run("a clone is refused without an effect on the agent", func(t *testing.T) {
		mark := spare.logOffset(t)
		spare.start(t)
		line := spare.waitForLog(t, mark, "WrongCluster")
		if !strings.Contains(line, "confirm") {
			t.Errorf("the agent does not say what to do: %s", line)
		}
		w.principal.waitForLog(t, 0, "Agent refused", "WrongCluster")
		w.hub.app("managed", "in-between").create(whole, simple("managed"))
		first.spoke.app(lab.ArgoCDNamespace, "in-between").becomes(t)
		first.connected(t)
		if err := countIs(spare.spoke, lab.ArgoCDNamespace, 0, "", ""); err != nil {
			t.Errorf("Applications on the clone: %v", err)
		}
	})
	t.Run("a replacement is accepted after confirmation", func(t *testing.T) {
		first.kill(t)
		uid := spare.spoke.object(namespaces, "", "kube-system").get(t).GetUID()
		w.hub.agent("managed").patch(t, `{"metadata":{"annotations":{"argocd-agent.argoproj-labs.io/confirm":"cluster-`+string(uid)+`"}}}`)
		spare.connected(t)
		for _, name := range []string{"before", "in-between"} {
			spare.spoke.app(lab.ArgoCDNamespace, name).becomes(t)
		}
		if err := countIs(w.hub, "managed", 2, "", ""); err != nil {
			t.Errorf("Applications on the hub: %v", err)
		}
	})
}

func TestTwoAgents_NewerSessionWins(t *testing.T) {
	t.Parallel()
	w := bareEnv(t, "managed")
	first := w.managed()
	second := w.addAgent(t, agentSetup{name: "managed", cluster: "managed", mode: "managed"})
	t.Cleanup(func() { first.signal(9) })
	mark := w.principal.logOffset(t)
	second.start(t)
	second.connected(t)
	first.disconnected(t)
	first.waitForLog(t, 0, "Superseded")
	for i := range 3 {
		name := fmt.Sprintf("app-%d", i)
		w.hub.app("managed", name).create(t, simple("managed"))
		second.spoke.app(lab.ArgoCDNamespace, name).becomes(t)
	}
	if n := strings.Count(w.principal.logged(t)[mark:], `msg="Agent connected"`); n != 1 {
		t.Errorf("the two took turns: %d sessions", n)
	}
	second.kill(t)
	first.connected(t) // the older agent connects after the newer one has stopped
}
