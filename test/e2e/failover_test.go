package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// hubObjects are the objects of a failover test: Applications web, api and old of agent managed, and mine of agent autonomous.
type hubObjects struct {
	*twoHubs
	first  string            // ID of the command that has run. It synced web
	before map[string]string // UIDs of Applications on workload clusters
}

// startTwoHubs starts the hub and its agents, and makes the second hub its standby.
func (h *twoHubs) startTwoHubs(t *testing.T) {
	t.Helper()
	for _, name := range []string{"managed", "autonomous"} {
		h.hub.agent(name).create(t, map[string]any{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent", "spec": map[string]any{"mode": name}})
	}
	h.principal.start(t)
	for _, a := range h.agents {
		a.start(t)
	}
	h.connected(t)
	h.mustCtl(t, "demote", "--principal-context", "second", "--other-context", "hub", "--yes")
	h.standby.start(t)
}

// replicate creates objects on the hub and waits until the standby has all of them. One command has run, and one waits for
// agent managed, which does not run.
func (h *twoHubs) replicate(t *testing.T) *hubObjects {
	t.Helper()
	r := &hubObjects{twoHubs: h, before: map[string]string{}}
	spoke := h.agents["managed"].spoke
	for _, name := range []string{"web", "api", "old"} {
		h.hub.app("managed", name).create(t, appSpec{repo: "https://git.example/x", project: "default", destination: "managed", namespace: "x", cascade: true}.object())
	}
	h.hub.project("shop").create(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"name": "managed", "namespace": "*"}}}})
	h.hub.secret("repo").create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"labels": map[string]any{"argocd.argoproj.io/secret-type": "repository"}},
		"stringData": map[string]any{"url": "https://git.example/x", "project": "shop", "password": "p"}})
	h.agents["autonomous"].spoke.app(lab.ArgoCDNamespace, "mine").create(t, appSpec{repo: "https://git.example/x", project: "default", destination: "in-cluster", namespace: "x"}.object())
	for _, o := range r.onSpokes() {
		r.before[o.String()] = string(o.becomes(t).GetUID())
	}
	h.hub.app("autonomous", "mine").becomes(t)

	h.hub.app("managed", "web").patch(t, `{"operation":{"sync":{"revision":"main"}}}`)
	r.first = execute(t, spoke.app(lab.ArgoCDNamespace, "web"))
	h.hub.app("managed", "web").becomes(t, hasNoOperation)
	h.agents["managed"].kill(t)
	h.hub.app("managed", "api").patch(t, `{"operation":{"sync":{"revision":"main"}}}`)
	r.equal(t, h.hub, h.second)
	received(t, h.second, h.hub.app("managed", "api"))
	return r
}

// onSpokes are the Applications of workload clusters.
func (r *hubObjects) onSpokes() []object {
	spoke := r.agents["managed"].spoke
	return []object{spoke.app(lab.ArgoCDNamespace, "web"), spoke.app(lab.ArgoCDNamespace, "api"), spoke.app(lab.ArgoCDNamespace, "old"),
		r.agents["autonomous"].spoke.app(lab.ArgoCDNamespace, "mine")}
}

// equal waits until the standby has every object of the active hub.
func (r *hubObjects) equal(t *testing.T, active, standby *clusterClient) {
	t.Helper()
	of := func(hub *clusterClient) []object {
		return []object{hub.app("managed", "web"), hub.app("managed", "api"), hub.app("managed", "old"), hub.app("autonomous", "mine"),
			hub.project("shop"), hub.project("default"), hub.secret("repo"), hub.secret("cluster-managed"), hub.agent("managed"), hub.agent("autonomous")}
	}
	copies := of(standby)
	for i, o := range of(active) {
		if o.name == "old" && o.get(t) == nil { // a user deleted it
			copies[i].goes(t)
			continue
		}
		same(t, o, copies[i])
	}
}

// kept checks that no Application of a workload cluster was replaced, and that none was deleted unless a user did.
func (r *hubObjects) kept(t *testing.T, when string, deleted ...string) {
	t.Helper()
	for _, o := range r.onSpokes() {
		u := o.get(t)
		switch {
		case len(deleted) > 0 && o.name == deleted[0]:
		case u == nil || string(u.GetUID()) != r.before[o.String()]:
			t.Errorf("%s, %s was replaced or deleted", when, o)
		}
	}
}

// serves checks that the second hub serves agents after a failover: the command that waited runs, the other one does not run
// again, and edits and deletions reach the workload clusters.
func (r *hubObjects) serves(t *testing.T) {
	t.Helper()
	spoke := r.agents["managed"].spoke
	if id := execute(t, spoke.app(lab.ArgoCDNamespace, "api")); id == "" || id == r.first {
		t.Errorf("the command that waited has ID %q", id)
	}
	r.second.app("managed", "api").becomes(t, hasNoOperation)
	setRevision(t, r.second.app("managed", "web"), "v2")
	spoke.app(lab.ArgoCDNamespace, "web").becomes(t, revisionIs("v2")) // the agent trusts the hub
	r.second.app("managed", "web").is(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "web").is(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "api").is(t, hasNoOperation)
	r.second.app("autonomous", "mine").becomes(t)
	r.kept(t, "after the failover")
	r.second.app("managed", "old").patch(t, `{"metadata":{"finalizers":null}}`)
	r.second.app("managed", "old").delete(t)
	spoke.app(lab.ArgoCDNamespace, "old").goes(t)
}

// catchesUp checks that the first hub, which was active before, has everything of the second one.
func (r *hubObjects) catchesUp(t *testing.T) {
	t.Helper()
	r.hub.app("managed", "web").becomes(t, revisionIs("v2"))
	r.hub.app("managed", "old").goes(t)
	r.equal(t, r.second, r.hub)
	received(t, r.hub, r.second.app("managed", "web"))
	r.kept(t, "after the return of the first hub", "old")
}

// permitted checks that no request of a principal was denied, and that the permissions of a standby were used.
func (h *twoHubs) permitted(t *testing.T) {
	t.Helper()
	all := map[string]bool{}
	for _, hub := range []*clusterClient{h.hub, h.second} {
		used, denied := requestsOf(t, hub.AuditLog, "system:serviceaccount:"+lab.ArgoCDNamespace+":"+hubAccount)
		maps.Copy(all, used)
		for request := range denied {
			t.Errorf("denied on %s: %s", hub.Name, request)
		}
	}
	for _, request := range []string{"update configmaps", "update agents.argocd-agent.argoproj-labs.io"} {
		if !all[request] {
			t.Errorf("no principal has sent: %s", request)
		}
	}
}

// A standby has everything of the active hub. When that hub is lost, it takes over: nothing on workload clusters changes,
// commands run once, and the old hub becomes the standby. Both principals have the permissions of the chart.
func TestFailover_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	h := newTwoHubs(t, twoHubsLab(t), nil)
	// Bad input: a hub with an Application of its own.
	h.second.ensureNamespace(t, "managed")
	own := h.second.app("managed", "own")
	own.create(t, simple("managed"))
	if out, err := h.ctl(t, "demote", "--principal-context", "second", "--other-context", "hub", "--yes"); err == nil || !strings.Contains(out, "1 Application") {
		t.Errorf("a hub with an Application of its own: %v\n%s", err, out)
	}
	own.delete(t)
	h.startTwoHubs(t)
	r := h.replicate(t)

	// The active hub is lost.
	h.principal.kill(t)
	if out, err := h.ctl(t, "promote", "--principal-context", "second", "--other-context", lab.Unreachable, "--yes"); err == nil || !strings.Contains(out, "It may still serve agents") {
		t.Errorf("promoted without --force: %v\n%s", err, out)
	}
	h.mustCtl(t, "promote", "--principal-context", "second", "--other-context", lab.Unreachable, "--force", lab.Unreachable, "--yes")
	h.standby.wait(t) // it ends because its role changes
	h.standby.start(t)
	h.agents["managed"].start(t)
	h.connected(t)
	r.serves(t)

	// The old hub is back. Agents do not follow it, and it becomes the standby.
	h.mustCtl(t, "demote", "--principal-context", "hub", "--other-context", "second", "--yes")
	h.principal.start(t)
	r.catchesUp(t)
	h.roles(t, "standby", "active", 2)
	r.switchBack(t)
	h.permitted(t)
}

// switchBack makes the first hub active again, in a planned switch. It is refused while the first hub lacks an edit, so that the
// second one has to become active again first. Afterwards no agent waits for a confirmation.
func (r *hubObjects) switchBack(t *testing.T) {
	t.Helper()
	web := r.second.app("managed", "web")
	r.mustCtl(t, "demote", "--principal-context", "second", "--yes")
	r.standby.wait(t)
	setRevision(t, web, "v3")
	promote := []string{"promote", "--principal-context", "hub", "--other-context", "second", "--yes"}
	if out, err := r.ctl(t, promote...); err == nil || !strings.Contains(out, "last state of 1 object of") || !strings.Contains(out, "Application managed/web (differs)") {
		t.Errorf("promoted a hub that lacks an edit: %v\n%s", err, out)
	}
	r.mustCtl(t, "promote", "--principal-context", "second", "--other-context", "hub", "--yes")
	r.standby.start(t)
	r.principal.wait(t) // its generation has changed
	r.principal.start(t)
	r.agents["managed"].spoke.app(lab.ArgoCDNamespace, "web").becomes(t, revisionIs("v3"))
	r.hub.app("managed", "web").becomes(t, revisionIs("v3"))
	r.equal(t, r.second, r.hub) // its own record is older
	r.mustCtl(t, "demote", "--principal-context", "second", "--yes")
	r.mustCtl(t, promote...)
	r.standby.wait(t)
	r.principal.wait(t)
	r.principal.start(t)
	r.connected(t)
	setRevision(t, r.hub.app("managed", "web"), "v4") // nothing is held, because the promotion has compared both hubs
	r.agents["managed"].spoke.app(lab.ArgoCDNamespace, "web").becomes(t, revisionIs("v4"))
	r.kept(t, "after the planned switch", "old")
}

// roles checks the state of both hubs.
func (h *twoHubs) roles(t *testing.T, first, second string, generation int) {
	t.Helper()
	await(t, "the roles of the hubs", func() error {
		out, err := h.ctl(t, "status", "--principal-context", "hub", "--other-context", "second", "-o", "json")
		var rows []struct {
			Hub, Role  string
			Generation int
			Lag        *int
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &rows)
		}
		if err != nil || len(rows) != 2 || rows[0].Role != first || rows[1].Role != second || rows[0].Generation != generation || rows[1].Generation != generation {
			return fmt.Errorf("hub status: %w\n%s", err, out)
		}
		for _, row := range rows {
			if row.Role == "standby" && row.Lag == nil {
				return fmt.Errorf("hub status shows no lag:\n%s", out)
			}
		}
		return nil
	})
}

// With a Lease in a third cluster, the standby takes over by itself when the active hub is lost, and the first hub does so when
// the second one is lost. Nothing is deleted, and no command runs twice. In the third cluster, the hubs have the permissions
// that docs/hubs.md describes.
func TestFailover_StandbyTakesOverByItself(t *testing.T) {
	t.Parallel()
	l := twoHubsLab(t, "third")
	flags := map[string][]string{}
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := l.Command(t.Context(), "kubectl", append([]string{"--context", "third"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	const namespace = "argocd-agent"
	kubectl("create", "namespace", namespace)
	kubectl("-n", namespace, "create", "role", "hub-lease", "--verb=get,create,patch", "--resource=leases.coordination.k8s.io")
	for _, hub := range []string{"hub", "second"} {
		kubectl("-n", namespace, "create", "serviceaccount", hub)
		kubectl("-n", namespace, "create", "rolebinding", hub, "--role=hub-lease", "--serviceaccount="+namespace+":"+hub)
		kubeconfig, err := l.Cluster("third").TokenKubeconfig(t.Context(), namespace, hub)
		if err != nil {
			t.Fatal(err)
		}
		flags[hub] = []string{"--hub-lease-kubeconfig", kubeconfig, "--hub-lease-namespace", namespace, "--hub-lease-duration", "30s"}
	}
	h := newTwoHubs(t, l, flags)
	third := newSite(l.Cluster("third"))
	holder := func() string {
		u := third.object(leases, namespace, "argocd-agent-hub").becomes(t)
		holder, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity")
		return holder
	}
	uid := func(hub *clusterClient) string {
		return string(hub.object(namespaces, "", "kube-system").get(t).GetUID())
	}
	h.startTwoHubs(t)
	r := h.replicate(t)
	if holder() != uid(h.hub) {
		t.Fatalf("the Lease is held by %s", holder())
	}

	// The active hub is lost. No user does anything.
	h.principal.kill(t)
	h.standby.wait(t) // it ends because its role changes
	if holder() != uid(h.second) {
		t.Errorf("after the takeover, the Lease is held by %s", holder())
	}
	h.standby.start(t)
	h.agents["managed"].start(t)
	h.connected(t)
	r.serves(t)

	// The old hub is back, finds that another hub is active, and becomes the standby. No user does anything.
	h.principal.start(t)
	h.principal.wait(t)
	h.roles(t, "standby", "active", 2)
	h.principal.start(t)
	r.catchesUp(t)

	// The second hub is lost, too.
	h.standby.kill(t)
	h.principal.wait(t)
	h.principal.start(t)
	h.connected(t)
	setRevision(t, h.hub.app("managed", "web"), "v3")
	spoke := h.agents["managed"].spoke
	spoke.app(lab.ArgoCDNamespace, "web").becomes(t, revisionIs("v3"))
	h.hub.app("managed", "web").patch(t, `{"operation":{"sync":{"revision":"main"}}}`)
	if id := execute(t, spoke.app(lab.ArgoCDNamespace, "web")); id == "" || id == r.first {
		t.Errorf("the command of the first hub has ID %q", id)
	}
	h.hub.app("managed", "web").becomes(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "web").is(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "api").is(t, hasNoOperation)
	r.kept(t, "after the second failover", "old")
	if holder() != uid(h.hub) {
		t.Errorf("after the second takeover, the Lease is held by %s", holder())
	}
	h.permitted(t)
}
