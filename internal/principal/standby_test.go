package principal

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// hubPair is an active hub and a standby, each with an API server.
type hubPair struct {
	t               *testing.T
	active, standby *replicated
	authority       *pki.Authority
	ca              map[string]any // Secret
}

const (
	kubeSystem = "/api/v1/namespaces/kube-system"
	caPath     = "/api/v1/namespaces/argocd/secrets/" + pki.AuthoritySecret
	webPath    = "/apis/argoproj.io/v1alpha1/namespaces/w1/applications/web"
)

func newHubPair(t *testing.T) *hubPair {
	t.Helper()
	h := &hubPair{t: t, active: &replicated{t: t, api: newMemoryAPI(t)}, standby: &replicated{t: t, api: newMemoryAPI(t)}}
	h.standby.api.put(kubeSystem, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system", "uid": "cluster-b"}})
	h.active.api.put(kubeSystem, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system", "uid": "cluster-a"}})
	secrets := &memorySecrets{}
	authority, _, err := (&pki.Manager{Secrets: secrets}).Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.authority = authority
	data := map[string]any{}
	for key, value := range secrets.last.Data {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	h.ca = map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": pki.AuthoritySecret, "namespace": "argocd"}, "data": data}
	h.active.api.put(caPath, h.ca)
	h.standby.api.put(caPath, h.ca)
	h.active.api.putHubState(hubState("active", "1"))
	h.standby.api.putHubState(hubState("standby", "1"))
	h.active.declare("w1")
	h.active.api.put(webPath, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "web", "namespace": "w1"},
		"spec": map[string]any{"project": "default"}})
	return h
}

// memorySecrets keeps one Secret.
type memorySecrets struct {
	pki.Secrets
	last *pki.Secret
}

func (m *memorySecrets) Get(context.Context, string) (*pki.Secret, error) { return m.last, nil }
func (m *memorySecrets) Put(_ context.Context, s *pki.Secret) error       { m.last = s; return nil }

// register registers the standby on the active hub.
func (h *hubPair) register() string {
	name := hubstate.AgentName("cluster-b")
	h.active.declareAs(name, "standby")
	return name
}

// declareAs creates an Agent with a mode.
func (r *replicated) declareAs(name, mode string) {
	r.declare(name)
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	o := r.api.objects[agentPath+name]
	o["spec"] = map[string]any{"mode": mode}
	r.api.store(agentPath+name, o)
}

// secured makes a hub serve TLS and authenticate by certificates.
func (h *hubPair) secured(cfg *Config) {
	pair, err := h.authority.Server([]string{"127.0.0.1"}, time.Hour, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	store := identity.NewStore("test")
	if err := store.Update(pair.Cert, pair.Key, h.authority.BundlePEM()); err != nil {
		h.t.Fatal(err)
	}
	method, err := identity.ParseMethod("mtls:CN=([^,]+)")
	if err != nil {
		h.t.Fatal(err)
	}
	cfg.TLS = identity.ServerTLS(store, cfg.Revocations)
	cfg.Authenticate = AuthenticateWith(&identity.Authenticator{Method: method, Revoked: cfg.Revocations})
	cfg.ApplicationNamespaces = []string{"w1", hubstate.AgentName("cluster-b")}
}

// startStandby runs the standby until the test ends or its state changes.
func (h *hubPair) startStandby(address string, change ...func(*Config)) <-chan error {
	ended, _ := h.runStandby(address, change...)
	return ended
}

// runStandby is startStandby. In addition, stop ends the standby and waits for that.
func (h *hubPair) runStandby(address string, change ...func(*Config)) (ended <-chan error, stop func()) {
	cfg := h.standby.config("standby")
	h.secured(&cfg)
	cfg.ActiveHubs = []string{address}
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { result <- Run(ctx, cfg) })
	stop = func() { cancel(); wg.Wait() }
	h.t.Cleanup(stop)
	return result, stop
}

func (a *memoryAPI) predecessor() string {
	data, _ := a.get(hubStatePath)["data"].(map[string]any)
	text, _ := data["predecessor"].(string)
	return text
}

// stateAnnotation returns an annotation of the ConfigMap with the state of a hub.
func (a *memoryAPI) stateAnnotation(name string) string {
	metadata, _ := a.get(hubStatePath)["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[kind.Prefix+name].(string)
	return text
}

// A standby connects with a certificate that it issues to itself, receives the objects of the active hub, and records up to
// where. Its role changes nothing for agents of the active hub.
func TestStandby_ReceivesObjects(t *testing.T) {
	began := time.Now()
	h := newHubPair(t)
	name := h.register()
	own := hubstate.AgentName("cluster-a") // the registration of the active hub, for the time after a takeover
	h.standby.declareAs(own, "standby")
	address := h.active.start("active", h.secured)
	ended := h.startStandby(address)
	eventually(t, "the Application is on the standby", func() bool { return h.standby.api.get(webPath) != nil })
	eventually(t, "the Agent is on the standby", func() bool { return h.standby.api.get(agentPath+"w1") != nil })
	if h.standby.api.get(agentPath+name) != nil {
		t.Error("the registration of the standby was copied")
	}
	eventually(t, "the standby is connected", func() bool { return h.active.status(name).Connected && h.active.status(name).ClusterUID == "cluster-b" })
	if h.active.api.get("/api/v1/namespaces/argocd/secrets/cluster-"+name) != nil {
		t.Error("the standby has a cluster Secret")
	}
	eventually(t, "the standby records what it has received", func() bool { return strings.HasPrefix(h.standby.api.predecessor(), "cluster-a/") })
	eventually(t, "the standby records when", func() bool {
		at, err := time.Parse(time.RFC3339, h.standby.api.stateAnnotation("received-at"))
		return err == nil && !at.Before(began.Truncate(time.Second)) && !at.After(time.Now())
	})
	select {
	case err := <-ended:
		t.Fatalf("the standby ended: %v", err)
	default:
	}
	h.active.api.put(webPath, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "web", "namespace": "w1"},
		"spec": map[string]any{"project": "changed"}})
	eventually(t, "a change arrives", func() bool {
		spec, _ := h.standby.api.get(webPath)["spec"].(map[string]any)
		return spec["project"] == "changed"
	})
	status := h.active.status("w1")
	if status.Connected {
		t.Error("an agent is connected that never was")
	}
	if h.standby.api.get(agentPath+own) == nil || h.active.api.get(agentPath+own) != nil {
		t.Error("the registration of the active hub on the standby was deleted or copied")
	}
}

// A standby shows how far it is behind the active hub, as the reference of metrics says.
func TestStandby_HasMetrics(t *testing.T) {
	h := newHubPair(t)
	h.register()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.startStandby(h.active.start("active", h.secured), func(cfg *Config) { cfg.MetricsListener = listener })
	scrape := func() string {
		response, err := http.Get("http://" + listener.Addr().String() + "/metrics")
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	eventually(t, "all objects are received", func() bool {
		return strings.Contains(scrape(), "\nargocd_agent_principal_standby_open_scopes 0\n")
	})
	text := scrape()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"argocd_agent_principal_standby_lag_seconds", "argocd_agent_principal_standby_open_scopes"} {
		_, help, _ := strings.Cut(text, "# HELP "+name+" ")
		help, _, _ = strings.Cut(help, "\n")
		if row := fmt.Sprintf("| `%s` | gauge |  | %s |\n", name, help); help == "" || !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/metrics.md lacks %s", row)
		}
	}
	_, lag, _ := strings.Cut(text, "\nargocd_agent_principal_standby_lag_seconds ")
	lag, _, _ = strings.Cut(lag, "\n")
	if seconds, err := strconv.ParseFloat(lag, 64); err != nil || seconds < 0 || seconds > 600 {
		t.Errorf("lag %q, %v", lag, err)
	}
}

// The record of when a standby had everything follows each proof, with at most one write a minute while nothing changes. It is
// never later than the proof, whatever happens to the clock and the process.
func TestStandbyRecord(t *testing.T) {
	const start = 1_000_000
	store := engine.Store{UID: "a", Revision: 7}
	var r standbyRecord
	var writes int
	now, equalAt, age := int64(start), engine.Time(1), int64(0)
	reset := func() {
		r, writes = standbyRecord{written: hubstate.State{Predecessor: store, ProvenAt: start}, at: start, before: start}, 0
		now, equalAt, age = start, 1, 0
	}
	observe := func(received engine.Store) {
		at, write := r.observe(now, received, equalAt, now-age)
		if write {
			writes++
			r.written = hubstate.Proven(r.written, received, at)
		}
	}
	pass := func(seconds int64, proven bool) {
		for range seconds / 5 {
			now += 5
			if proven {
				equalAt += 5000
			}
			observe(store)
		}
	}

	reset()
	for range 120 {
		pass(30, true)
		if age := now - r.written.ProvenAt; age > 70 {
			t.Fatalf("a quiet hub: the record is %d s old", age)
		}
	}
	if writes < 55 || writes > 60 {
		t.Errorf("a quiet hub: %d writes in an hour", writes)
	}
	before := r.written.ProvenAt
	pass(3600, false)
	if r.written.ProvenAt-before > 60 {
		t.Errorf("without a proof, the record is %d s later", r.written.ProvenAt-before)
	}

	reset()
	pass(300, true)
	equalAt += 1000 // a proof, then the process is suspended for a day
	now += 86400
	observe(store)
	if r.at > start+300 {
		t.Errorf("a process that was suspended: the record is %d s later than the proof", r.at-start-300)
	}

	reset()
	pass(300, true)
	pass(600, false)
	equalAt += 1000 // the first of the last proofs of all kinds, ten minutes ago: one kind was not proven equal until now
	now += 5
	age = 604
	observe(store)
	if r.at > start+301 {
		t.Errorf("the proofs of kinds are of different times: the record is %d s later than the first of them", r.at-start-301)
	}

	reset()
	pass(300, true)
	now -= 86400 // the clock is set back
	pass(10, true)
	if age := now - r.written.ProvenAt; age < 0 || age > 10 {
		t.Errorf("the clock was set back: the record is %d s old", age)
	}

	reset()
	pass(60, true)
	observe(engine.Store{}) // a session begins: nothing is known
	if r.written.Predecessor != store {
		t.Errorf("the record is of %v", r.written.Predecessor)
	}
	writes = 0
	observe(engine.Store{UID: "a", Revision: 8})
	if writes != 1 || r.written.Predecessor.Revision != 8 {
		t.Errorf("a change: %d writes, %v", writes, r.written.Predecessor)
	}
}

// The active hub was restored from a backup, and a user has confirmed that. The record of what was received is then lower: with
// the old one, a promotion of this hub would claim writes of the restored hub that were never received.
func TestStandby_RecordsLessAfterARestore(t *testing.T) {
	h := newHubPair(t)
	name := h.register()
	state := hubState("standby", "1")
	state["predecessor"] = "cluster-a/1000000"
	h.standby.api.putHubState(state)
	h.startStandby(h.active.start("active", h.secured))
	eventually(t, "the hold of the standby is confirmed", func() bool {
		for _, hold := range h.active.status(name).Holds {
			h.active.api.mu.Lock()
			o := h.active.api.objects[agentPath+name]
			o["metadata"].(map[string]any)["annotations"] = map[string]any{kind.Confirmation: hold.ID}
			h.active.api.store(agentPath+name, o)
			h.active.api.mu.Unlock()
			return true
		}
		return false
	})
	eventually(t, "the standby records the restored store", func() bool {
		text := h.standby.api.predecessor()
		return strings.HasPrefix(text, "cluster-a/") && text != "cluster-a/1000000"
	})
}

// The active hub is restored from a backup while the standby does not run, and its revision has grown past the recorded one.
// The standby knows the history mark that was lost, also after its restart, and holds everything.
func TestStandby_RecognizesARestoreAfterItsRestart(t *testing.T) {
	h := newHubPair(t)
	name := h.register()
	address := h.active.start("active", h.secured)
	_, stop := h.runStandby(address)
	eventually(t, "the standby records a history mark", func() bool {
		mark := h.standby.api.stateAnnotation("predecessor-mark")
		return mark != "" && !strings.HasSuffix(mark, "/0")
	})
	stop()
	eventually(t, "the standby is disconnected", func() bool { return !h.active.status(name).Connected })
	h.restoreActive(name)
	h.startStandby(address)
	eventually(t, "the standby holds everything of the restored hub", func() bool {
		return slices.ContainsFunc(h.active.status(name).Holds, func(hold v1alpha1.Hold) bool { t.Logf("%+v", hold); return hold.Scope == "" })
	})
	if spec, _ := h.standby.api.get(webPath)["spec"].(map[string]any); spec["project"] != "default" {
		t.Errorf("an object was overwritten: %v", spec)
	}
}

// A replica of the standby waits while another one records what was received. When it takes over, it compares with that record, and
// recognizes that the active hub was restored.
func TestStandby_NextReplicaRecognizesARestore(t *testing.T) {
	h := newHubPair(t)
	name := h.register()
	address := h.active.start("active", h.secured)
	leasePath := "/apis/coordination.k8s.io/v1/namespaces/argocd/leases/" + standbyLeaseName
	first, _ := h.runStandby(address)
	eventually(t, "the first replica holds the Lease", func() bool { return h.standby.api.get(leasePath) != nil })
	var mu sync.Mutex
	var lines []string
	h.startStandby(address, func(cfg *Config) { cfg.Replica, cfg.Log = "standby-2", captureLog(&mu, &lines) })
	eventually(t, "the second replica waits", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(lines, "\n"), "Agents are refused")
	})
	eventually(t, "the standby records a history mark", func() bool {
		mark := h.standby.api.stateAnnotation("predecessor-mark")
		return mark != "" && !strings.HasSuffix(mark, "/0")
	})
	h.standby.api.put(leasePath, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", // the first replica loses it
		"metadata": map[string]any{"name": standbyLeaseName, "namespace": "argocd"}, "spec": map[string]any{"holderIdentity": "gone", "leaseDurationSeconds": 1}})
	<-first
	eventually(t, "the standby is disconnected", func() bool { return !h.active.status(name).Connected })
	h.restoreActive(name)
	eventually(t, "the standby holds everything of the restored hub", func() bool {
		return slices.ContainsFunc(h.active.status(name).Holds, func(hold v1alpha1.Hold) bool { return hold.Scope == "" })
	})
	if spec, _ := h.standby.api.get(webPath)["spec"].(map[string]any); spec["project"] != "default" {
		t.Errorf("an object was overwritten: %v", spec)
	}
}

// restoreActive lets the active hub lose a history mark, and have an older state of an Application.
func (h *hubPair) restoreActive(agent string) {
	h.active.api.mu.Lock()
	o := h.active.api.objects[agentPath+agent]
	o["status"].(map[string]any)["historyMark"] = 0
	h.active.api.store(agentPath+agent, o)
	h.active.api.mu.Unlock()
	h.active.api.put(webPath, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "web", "namespace": "w1"},
		"spec": map[string]any{"project": "restored"}})
}

// An agent gets the objects of the hub only if the hub has it registered as a standby.
func TestStandby_MustBeRegistered(t *testing.T) {
	for name, register := range map[string]func(*hubPair){
		"no Agent":    func(*hubPair) {},
		"other mode":  func(h *hubPair) { h.active.declare(hubstate.AgentName("cluster-b")) },
		"open":        func(*hubPair) {},
		"other agent": func(h *hubPair) { h.active.declare("hub-x") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubPair(t)
			register(h)
			var mu sync.Mutex
			var refused []string
			address := h.active.start("active", h.secured, func(cfg *Config) { cfg.RequireRegistration = name != "open" })
			h.startStandby(address, func(cfg *Config) { cfg.Log = captureLog(&mu, &refused) })
			eventually(t, "the standby is refused", func() bool {
				mu.Lock()
				defer mu.Unlock()
				text := strings.Join(refused, "\n")
				return strings.Contains(text, "not registered") || strings.Contains(text, "registered as managed")
			})
			if h.standby.api.get(webPath) != nil {
				t.Error("an object was sent")
			}
			if agent := hubstate.AgentName("cluster-b"); name == "open" && h.active.api.get(agentPath+agent) != nil {
				t.Error("the standby registered itself")
			}
		})
	}
}

// A standby does not follow a hub of another group or release, nor one with the generation with which it was active itself.
func TestStandby_RefusesOtherHubs(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*hubPair)
		active func(*Config)
		want   string
	}{
		"identity": {change: func(h *hubPair) {
			h.active.api.putHubState(map[string]any{"identity": "group-2", "role": "active", "generation": "1"})
		}, want: "different groups"},
		"generation": {change: func(h *hubPair) {
			h.standby.api.put(hubStatePath, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": hubState("standby", "1"),
				"metadata": map[string]any{"name": hubstate.ConfigMap, "namespace": "argocd", "annotations": map[string]any{kind.Prefix + "active-generation": "1"}}})
		}, want: "two hubs claim to be active with generation 1"},
		"release": {active: func(cfg *Config) { cfg.Version = "other" }, want: `release "test", and the active hub "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHubPair(t)
			h.register()
			if tc.change != nil {
				tc.change(h)
			}
			var mu sync.Mutex
			var lines []string
			address := h.active.start("active", h.secured, func(cfg *Config) {
				if tc.active != nil {
					tc.active(cfg)
				}
			})
			h.startStandby(address, func(cfg *Config) { cfg.Log = captureLog(&mu, &lines) })
			eventually(t, tc.want, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(strings.Join(lines, "\n"), tc.want)
			})
			if h.standby.api.get(webPath) != nil {
				t.Error("an object was written")
			}
		})
	}
}

// A hub with another CA is not reached at all.
func TestStandby_RefusesAnotherCA(t *testing.T) {
	h, other := newHubPair(t), newHubPair(t)
	h.register()
	address := other.active.start("active", other.secured)
	var mu sync.Mutex
	var lines []string
	h.startStandby(address, func(cfg *Config) { cfg.Log = captureLog(&mu, &lines) })
	eventually(t, "a TLS error", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(lines, "\n"), "CA")
	})
}

// A later generation of the active hub is stored before it is followed.
func TestStandby_StoresTheGeneration(t *testing.T) {
	h := newHubPair(t)
	h.register()
	h.active.api.putHubState(hubState("active", "7"))
	ended := h.startStandby(h.active.start("active", h.secured))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "generation 7") {
		t.Errorf("ended with %v", err)
	}
	h.startStandby(h.active.start("again", h.secured))
	eventually(t, "the Application is on the standby", func() bool { return h.standby.api.get(webPath) != nil })
}

// The names in kind are those of the packages that define them.
func TestStandbyKinds_KnowTheObjectsOfThisHub(t *testing.T) {
	object := func(text string) *kind.Object {
		o, err := kind.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	kinds := map[kind.Resource]kind.Kind{}
	for _, k := range kind.StandbyKinds() {
		kinds[k.Resource()] = k
	}
	for _, tc := range []struct {
		resource kind.Resource
		metadata string
		want     bool
	}{
		{kind.Secrets, fmt.Sprintf(`{"name":%q}`, pki.AuthoritySecret), true},
		{kind.Secrets, fmt.Sprintf(`{"name":"token","labels":{%q:"w1"}}`, pki.JoinLabel), true},
		{kind.Secrets, fmt.Sprintf(`{"name":%q,"labels":{%q:%q}}`, pki.PrincipalSecret, pki.ManagedLabel, pki.ManagedValue), false},
		{kind.Secrets, fmt.Sprintf(`{"name":%q}`, pki.ProxySecret), false},
		{kind.ConfigMaps, fmt.Sprintf(`{"name":%q}`, revoke.ConfigMap), true},
		{kind.ConfigMaps, fmt.Sprintf(`{"name":%q}`, hubstate.ConfigMap), false},
	} {
		if got := kinds[tc.resource].Matches(object(`{"metadata":` + tc.metadata + `}`)); got != tc.want {
			t.Errorf("%s %s: %v", tc.resource.Kind, tc.metadata, got)
		}
	}
}

// captureLog returns a logger whose lines are appended to lines, protected by mu.
func captureLog(mu *sync.Mutex, lines *[]string) *slog.Logger {
	return slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		*lines = append(*lines, strings.ReplaceAll(string(b), `\"`, `"`))
		return len(b), nil
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
