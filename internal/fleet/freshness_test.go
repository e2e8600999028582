package fleet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// freshHub is a hub with Applications. Several principal replicas can run on it.
type freshHub struct {
	t        *testing.T
	mu       sync.Mutex
	revision int
	agents   map[string]v1alpha1.Agent
	apps     map[string]*kind.Object // by namespace/name
	sets     map[string]string       // name of an ApplicationSet → its strategy
	writes   []time.Time
	replicas []*freshReplica
	onWrite  func(o *kind.Object) *kind.Object // what a webhook or another controller makes of a write
}

type freshReplica struct {
	*Freshness
	name       string
	registry   *Registry
	leases     *Replicas
	mu         sync.Mutex
	reconciler *reconcile.Reconciler
	sessions   map[string]bool
	stop       context.CancelFunc
}

func newFreshHub(t *testing.T) *freshHub {
	t.Helper()
	return &freshHub{t: t, agents: map[string]v1alpha1.Agent{}, apps: map[string]*kind.Object{}, sets: map[string]string{}}
}

// RoundTrip implements http.RoundTripper: the API server.
func (h *freshHub) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	written := false
	h.mu.Lock()
	namespace, name := path.Base(path.Dir(path.Dir(r.URL.Path))), path.Base(r.URL.Path)
	key := namespace + "/" + name
	switch strategy, isSet := h.sets[name]; {
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/applicationsets/") && isSet:
		fmt.Fprintf(w, `{"kind":"ApplicationSet","metadata":{"name":%q,"namespace":%q},"spec":{"strategy":{"type":%q}}}`, name, namespace, strategy)
	case r.Method == http.MethodPut && h.apps[key] != nil:
		body, _ := io.ReadAll(r.Body)
		o, err := kind.Parse(body)
		if err != nil {
			h.t.Errorf("%v in %s", err, body)
		}
		if o.ResourceVersion() != h.apps[key].ResourceVersion() {
			conflict(w)
			break
		}
		written = true
		h.writes = append(h.writes, time.Now())
		_, _ = w.Write(h.put(o).Raw())
		if h.onWrite != nil {
			if after := h.onWrite(h.apps[key]); after != nil {
				h.put(after)
			}
		}
	default:
		notFound(w, r)
	}
	h.mu.Unlock()
	if written {
		h.deliver(key)
	}
	return w.Result(), nil
}

// put stores an Application. The caller must hold mu.
func (h *freshHub) put(o *kind.Object) *kind.Object {
	h.revision++
	raw, err := rawjson.Set(o.Raw(), rawjson.Quote(fmt.Sprint(h.revision)), "metadata", "resourceVersion")
	if err != nil {
		h.t.Error(err)
	}
	stored, err := kind.Parse(raw)
	if err != nil {
		h.t.Error(err)
	}
	h.apps[o.Namespace()+"/"+o.Name()] = stored
	return stored
}

// deliver shows all replicas an Application.
func (h *freshHub) deliver(key string) {
	h.mu.Lock()
	o := h.apps[key]
	h.mu.Unlock()
	if o == nil {
		return
	}
	for _, r := range h.running() {
		r.follow(reconcile.Observed{Resource: kind.Applications, Object: o})
	}
}

// application creates or replaces a healthy Application in the namespace of an agent.
func (h *freshHub) application(namespace, name string, change ...string) {
	h.t.Helper()
	text := strings.NewReplacer(change...).Replace(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"` + name + `","namespace":"` + namespace + `","uid":"` + name + `","annotations":{"team":"a"}},
		"spec":{"project":"default","destination":{"name":"` + namespace + `"}},"status":{"health":{"status":"Healthy"},"sync":{"status":"Synced"}}}`)
	o, err := kind.Parse([]byte(text))
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.put(o)
	h.mu.Unlock()
	h.deliver(namespace + "/" + name)
}

// see stores an Agent and shows it to all replicas.
func (h *freshHub) see(name string, change func(*v1alpha1.Agent)) {
	h.t.Helper()
	h.mu.Lock()
	h.revision++
	a, known := h.agents[name]
	if !known {
		a = agent(name, 0, "managed")
	}
	if change != nil {
		change(&a)
	}
	a.ResourceVersion = fmt.Sprint(h.revision)
	h.agents[name] = a
	h.mu.Unlock()
	for _, r := range h.running() {
		if err := r.registry.Apply(h.t.Context(), reconcile.Observed{Resource: AgentResource, Object: parsed(h.t, a)}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// connected and disconnected are changes of an Agent's status by the StatusWriter.
func connected(replica string) func(*v1alpha1.Agent) {
	return func(a *v1alpha1.Agent) {
		a.Status.Connected, a.Status.Since, a.Status.Principal = true, &metav1.Time{Time: time.Now()}, replica
	}
}

func disconnected(a *v1alpha1.Agent) {
	a.Status.Connected, a.Status.Since = false, &metav1.Time{Time: time.Now().Truncate(time.Second)}
}

func (r *freshReplica) follow(in reconcile.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconciler.Step(0, in)
	r.Follow(in)
}

// start starts a principal replica.
func (h *freshHub) start(name string, settings FreshnessSettings) *freshReplica {
	h.t.Helper()
	log := slog.New(slog.DiscardHandler)
	client, err := kube.NewClient(&rest.Config{Host: "https://hub", Transport: h})
	if err != nil {
		h.t.Fatal(err)
	}
	r := &freshReplica{name: name, sessions: map[string]bool{},
		reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "hub"})}
	r.registry = NewRegistry(RegistryConfig{Namespace: "argocd", Mapping: kind.ByNamespace, ProxyAddress: "proxy:9090", Log: log,
		Post: func(_ context.Context, in reconcile.Input) error { r.follow(in); return nil }})
	r.leases = NewReplicas(nil, r.registry, "argocd", name, "", log)
	r.Freshness = NewFreshness(FreshnessConfig{FreshnessSettings: settings, Client: client, Registry: r.registry, Replicas: r.leases, Reconciler: r.reconciler, Log: log,
		Connected: func(agent string) bool { r.mu.Lock(); defer r.mu.Unlock(); return r.sessions[agent] },
		Ready:     func(context.Context) error { return nil },
		Do: func(_ context.Context, do func(*reconcile.Reconciler)) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			do(r.reconciler)
			return nil
		}})
	var agents, apps []*kind.Object
	h.mu.Lock()
	for _, a := range h.agents {
		agents = append(agents, parsed(h.t, a))
	}
	for _, o := range h.apps {
		apps = append(apps, o)
	}
	revision := uint64(h.revision)
	h.mu.Unlock()
	project := parsed(h.t, map[string]any{"metadata": map[string]any{"name": "default", "namespace": "argocd", "uid": "p", "resourceVersion": "1"},
		"spec": map[string]any{"destinations": []map[string]string{{"name": "*", "namespace": "*"}}, "sourceNamespaces": []string{"*"}}})
	r.follow(reconcile.List{Resource: kind.AppProjects, Objects: []*kind.Object{project}, Revision: 1})
	r.follow(reconcile.List{Resource: kind.Applications, Objects: apps, Revision: revision})
	for _, in := range []reconcile.List{{Resource: AgentResource, Objects: agents, Revision: revision}, {Resource: kind.Secrets, Revision: revision}} {
		if err := r.registry.Apply(h.t.Context(), in); err != nil {
			h.t.Fatal(err)
		}
	}
	h.setReplicas(append(h.running(), r)...)
	h.renew()
	ctx, stop := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	r.stop = func() {
		stop()
		running.Wait()
		h.setReplicas(slices.DeleteFunc(h.running(), func(other *freshReplica) bool { return other == r })...)
	}
	h.t.Cleanup(r.stop)
	return r
}

func (h *freshHub) running() []*freshReplica {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.replicas)
}

func (h *freshHub) setReplicas(all ...*freshReplica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replicas = all
}

// renew shows the Leases of all replicas to all replicas.
func (h *freshHub) renew() {
	h.t.Helper()
	h.mu.Lock()
	h.revision++
	revision := fmt.Sprint(h.revision)
	h.mu.Unlock()
	var leases []*kind.Object
	for _, r := range h.running() {
		leases = append(leases, parsed(h.t, map[string]any{"metadata": map[string]any{"name": r.name, "namespace": "argocd", "resourceVersion": revision,
			"annotations": map[string]string{replicaAnnotation: r.name}}}))
	}
	for _, r := range h.running() {
		if err := r.leases.Apply(h.t.Context(), reconcile.List{Resource: kube.Leases, Objects: leases}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// pass lets time pass, with Leases that are renewed.
func (h *freshHub) pass(d time.Duration) {
	h.t.Helper()
	for ; d > 0; d -= 10 * time.Second {
		time.Sleep(min(d, 10*time.Second))
		h.renew()
	}
	synctest.Wait()
}

// expect checks how many Applications show an outage, how many have health Unknown, and how many were written since the
// last call.
func (h *freshHub) expect(when string, shown, unknown, writes int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	gotShown, gotUnknown := 0, 0
	for key, o := range h.apps {
		if kind.ShowsDisconnected(o) {
			gotShown++
		}
		switch health := rawjson.Text(o.Get("status", "health", "status")); {
		case health == "Unknown":
			gotUnknown++
		case health != "Healthy" || rawjson.Text(o.Get("status", "sync", "status")) != "Synced" || o.Annotation("team") != "a":
			h.t.Errorf("%s: %s is %s", when, key, o.Raw())
		}
	}
	if gotShown != shown || gotUnknown != unknown || len(h.writes) != writes {
		h.t.Errorf("%s: %d Applications show an outage, want %d; health of %d is Unknown, want %d; %d were written, want %d", when, gotShown, shown, gotUnknown, unknown, len(h.writes), writes)
	}
	h.writes = nil
}

var freshSettings = FreshnessSettings{After: time.Minute, Health: HideHealthRollingSync, Notice: true}

func TestFreshness_ShowsAnOutageAfterTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFreshHub(t)
		h.see("w1", connected("a"))
		h.see("w2", connected("a"))
		h.see("never", nil)
		h.see("slow", func(a *v1alpha1.Agent) { connected("a")(a); a.Spec.DisconnectedAfter = "1h" })
		h.see("off", func(a *v1alpha1.Agent) { connected("a")(a); a.Spec.DisconnectedAfter = "0s" })
		for _, namespace := range []string{"w1", "w2", "never", "slow", "off", "other"} {
			h.application(namespace, "x")
			h.application(namespace, "y")
		}
		r := h.start("a", freshSettings)
		h.pass(2 * time.Minute)
		h.expect("connected", 0, 0, 0)

		for _, name := range []string{"w1", "w2", "slow", "off"} {
			h.see(name, disconnected)
		}
		since := time.Now().UTC().Format(time.RFC3339)
		h.pass(50 * time.Second)
		h.see("w2", connected("a"))
		h.expect("before the threshold", 0, 0, 0)
		h.pass(15 * time.Second)
		h.expect("after the threshold", 2, 0, 2)
		for _, name := range []string{"x", "y"} {
			text := string(h.apps["w1/"+name].Raw())
			if !strings.Contains(text, `"type":"AgentDisconnected"`) || !strings.Contains(text, "Agent w1 has been disconnected since "+since) ||
				h.apps["w1/"+name].Annotation("notice.argocd.argoproj.io/severity") != "warning" {
				t.Errorf("it is %s", text)
			}
		}
		h.application("w1", "later")
		h.pass(30 * time.Minute)
		h.expect("half an hour later, with another Application", 3, 0, 1)
		h.pass(time.Hour)
		h.expect("after the threshold of another agent", 5, 0, 2)

		r.mu.Lock()
		r.sessions["w1"] = true // its status is not written yet
		r.mu.Unlock()
		h.pass(10 * time.Second)
		h.expect("as soon as it has a session", 2, 0, 3)
		h.see("w1", connected("a"))
		h.see("slow", connected("a"))
		h.pass(10 * time.Second)
		h.expect("all are back", 0, 0, 2)
	})
}

func TestFreshness_HidesHealth(t *testing.T) {
	for policy, want := range map[HealthPolicy]int{HideHealthNever: 0, HideHealthRollingSync: 1, HideHealthAlways: 4} {
		synctest.Test(t, func(t *testing.T) {
			h := newFreshHub(t)
			h.sets = map[string]string{"steps": "RollingSync", "at-once": "AllAtOnce"}
			h.see("w1", disconnected)
			h.application("w1", "plain")
			for _, set := range []string{"steps", "at-once", "gone"} {
				h.application("w1", "of-"+set, `"uid"`, `"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"ApplicationSet","name":"`+set+`"}],"uid"`)
			}
			h.start("a", FreshnessSettings{After: time.Minute, Health: policy})
			h.pass(2 * time.Minute)
			h.expect(string(policy), 4, want, 4)
			h.mu.Lock()
			h.sets["at-once"] = "RollingSync"
			h.mu.Unlock()
			h.pass(3 * time.Minute)
			changed := 0
			if policy == HideHealthRollingSync {
				changed = 1
			}
			h.expect(string(policy)+", with another strategy", 4, want+changed, changed)
			h.see("w1", connected("a"))
			h.pass(time.Minute)
			h.expect(string(policy)+", back", 0, 0, 4)
		})
	}
}

// A fleet that loses its network costs few writes per second, in both directions. What is not written yet is not written
// for agents that have returned.
func TestFreshness_BoundsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, each = 100, 10
		h := newFreshHub(t)
		for i := range agents {
			name := fmt.Sprintf("w%03d", i)
			h.see(name, connected("a"))
			for j := range each {
				h.application(name, fmt.Sprint("app-", j))
			}
		}
		h.start("a", freshSettings)
		all := func(change func(*v1alpha1.Agent)) {
			for i := range agents {
				h.see(fmt.Sprintf("w%03d", i), change)
			}
		}
		perSecond := func() (most int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			counts := map[int64]int{}
			for _, at := range h.writes {
				counts[at.Unix()]++
				most = max(most, counts[at.Unix()])
			}
			return most
		}
		all(disconnected)
		h.pass(5 * time.Minute)
		if most := perSecond(); most > 51 {
			t.Errorf("%d writes in a second", most)
		}
		h.expect("disconnected", agents*each, 0, agents*each)
		all(connected("a"))
		h.pass(5 * time.Second)
		returned := perSecond()
		all(disconnected)
		h.pass(55 * time.Second)
		h.mu.Lock()
		some := len(h.writes)
		h.mu.Unlock()
		all(connected("a"))
		h.pass(5 * time.Minute)
		if most := max(returned, perSecond()); most > 51 {
			t.Errorf("%d writes in a second", most)
		}
		if some != agents*each {
			t.Errorf("%d of %d were written after the return", some, agents*each)
		}
		h.expect("back", 0, 0, agents*each)

		all(disconnected)
		h.pass(65 * time.Second)
		all(connected("a"))
		h.pass(5 * time.Minute)
		h.mu.Lock()
		if len(h.writes) == 0 || len(h.writes) > agents*each*7/10 {
			t.Errorf("%d writes although most had returned", len(h.writes))
		}
		h.writes = nil
		h.mu.Unlock()
		h.expect("back from a short outage", 0, 0, 0)
	})
}

func TestFreshness_OneReplicaWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFreshHub(t)
		h.see("w1", connected("b"))
		for i := range 20 {
			h.application("w1", fmt.Sprint("app-", i))
		}
		first := h.start("a", freshSettings)
		second := h.start("b", freshSettings)
		h.see("w1", disconnected)
		h.pass(2 * time.Minute)
		h.expect("disconnected", 20, 0, 20)
		if len(second.noticed) != 20 || len(first.noticed) > 0 { // the second had the last session
			t.Errorf("replica a wrote %d, replica b %d", len(first.noticed), len(second.noticed))
		}
		second.stop()
		h.application("w1", "later")
		h.pass(2 * time.Minute)
		h.expect("the second replica has ended", 21, 0, 1)
		h.see("w1", connected("b"))
		h.pass(time.Minute)
		h.expect("back", 0, 0, 21)
	})
}

// What an earlier process left is removed or kept, as the Agents say.
func TestFreshness_ContinuesAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFreshHub(t)
		for _, name := range []string{"back", "gone", "deleted", "suspended", "invalid"} {
			h.see(name, disconnected)
			h.application(name, "x")
		}
		r := h.start("a", FreshnessSettings{After: time.Minute, Health: HideHealthAlways, Notice: true})
		h.pass(2 * time.Minute)
		h.expect("disconnected", 5, 5, 5)
		r.stop()
		h.see("back", connected("a"))
		h.see("suspended", func(a *v1alpha1.Agent) { a.Spec.Suspended = true })
		delete(h.agents, "deleted")

		r = h.start("a", FreshnessSettings{After: time.Minute, Health: HideHealthAlways, Notice: true})
		h.pass(2 * time.Minute)
		h.expect("after a restart", 3, 3, 2)
		now := metav1.Now()
		h.see("gone", func(a *v1alpha1.Agent) { a.DeletionTimestamp = &now })
		h.pass(time.Minute)
		h.expect("while an Agent is being deleted", 2, 2, 1)
		if err := r.registry.Apply(t.Context(), reconcile.Deleted{Ref: r.registry.ref("invalid"), Revision: 1 << 40}); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		h.expect("after the deletion of an Agent", 1, 1, 1)
		r.stop()
		h.start("a", FreshnessSettings{Health: HideHealthNever})
		h.pass(2 * time.Minute)
		h.expect("switched off", 0, 0, 1)
	})
}

// The ApplicationSet controller removes annotations that it does not know. The two do not overwrite each other.
func TestFreshness_WritesANoticeOncePerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFreshHub(t)
		removed := 0
		h.onWrite = func(o *kind.Object) *kind.Object {
			if !kind.ShowsNotice(o) {
				return nil
			}
			removed++
			raw, err := rawjson.Set(o.Raw(), []byte(`{"team":"a"}`), "metadata", "annotations")
			if err != nil {
				t.Error(err)
			}
			after, err := kind.Parse(raw)
			if err != nil {
				t.Error(err)
			}
			return after
		}
		h.see("w1", disconnected)
		h.application("w1", "x")
		h.start("a", freshSettings)
		for i := range 2 {
			h.pass(10 * time.Minute)
			h.expect("disconnected", 1, 0, 1)
			if removed != i+1 {
				t.Errorf("the notice was written %d times in %d outages", removed, i+1)
			}
			h.see("w1", connected("a"))
			h.pass(time.Minute)
			h.expect("back", 0, 0, 1)
			h.see("w1", disconnected)
		}
	})
}

// A change by another client between decision and write is not lost.
func TestFreshness_DecidesAgainAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFreshHub(t)
		h.see("w1", disconnected)
		h.application("w1", "x")
		h.start("a", freshSettings)
		h.mu.Lock()
		h.put(parsedText(t, strings.Replace(string(h.apps["w1/x"].Raw()), `"status":{`, `"status":{"history":[1],`, 1))) // the watch does not show it yet
		h.mu.Unlock()
		h.pass(2 * time.Minute)
		h.expect("with a stale view", 0, 0, 0)
		h.deliver("w1/x")
		h.pass(10 * time.Second)
		h.expect("with the current view", 1, 0, 1)
		if string(h.apps["w1/x"].Get("status", "history")) != `[1]` {
			t.Errorf("a change was lost: %s", h.apps["w1/x"].Raw())
		}
	})
}

func parsedText(t *testing.T, text string) *kind.Object {
	t.Helper()
	o, err := kind.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
