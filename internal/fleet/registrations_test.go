package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

func TestCertificateDenial_MatchesDenyReason(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Agent){
		"":                         func(*v1alpha1.Agent) {},
		"is suspended":             func(a *v1alpha1.Agent) { a.Spec.Suspended = true },
		"is being deleted":         func(a *v1alpha1.Agent) { a.DeletionTimestamp = &a.CreationTimestamp },
		"two clients have its key": func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.ReusedAnnotation: "x"} },
		"is retired":               func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "x"} },
	} {
		a := agent("w1", 1, "managed", change)
		d := newTestRegistry(t)
		d.see(a)
		if why := certificateDenial(&a, ""); (why == "") != (want == "") || !strings.Contains(why, want) || (why == "") != (d.DenyReason("w1") == "") {
			t.Errorf("%q: certificate denied because %q, connection denied because %q", want, why, d.DenyReason("w1"))
		}
	}
}

// An agent that was deleted may still have its token and the key that it was used
// with: they must not bring it back.
func TestFinalize_DeletesJoinTokens(t *testing.T) {
	var mu sync.Mutex
	var did []string
	going := version("u1", 1, true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch secrets := "/api/v1/namespaces/argocd/secrets"; {
		case r.Method == http.MethodGet && r.URL.Path == secrets:
			fmt.Fprintf(w, `{"kind":"SecretList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"argocd-agent-join-aaaaaaaa","resourceVersion":"7","labels":{%q:"w1"}}},
				{"metadata":{"name":"argocd-agent-join-bbbbbbbb","resourceVersion":"8","labels":{%q:"w2"}}}]}`, pki.JoinLabel, pki.JoinLabel)
		case r.Method == http.MethodGet && path.Base(r.URL.Path) == "w1":
			_ = json.NewEncoder(w).Encode(going)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"metadata":{"name":"agents","resourceVersion":"1"}}`) // the definition
		default:
			did = append(did, r.Method+" "+path.Base(r.URL.Path))
			fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		}
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t)
	k := newTestReconciler(t, d, client)
	rec := agentRecord{Agent: going}
	if err := k.finalize(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if want := []string{"DELETE argocd-agent-join-aaaaaaaa", "POST configmaps", "PATCH w1"}; !slices.Equal(did, want) {
		t.Errorf("it did %q instead of %q", did, want)
	}
}

func TestRegister_DeletedAgentIsNotRegisteredAgain(t *testing.T) {
	withdrawn := errors.New("the token was withdrawn")
	there := func(change ...func(*v1alpha1.Agent)) *v1alpha1.Agent {
		a := agent("w1", 1, "managed", change...)
		return &a
	}
	deleting := there(func(a *v1alpha1.Agent) { a.DeletionTimestamp = &a.CreationTimestamp })
	for title, test := range map[string]struct {
		seen   []*v1alpha1.Agent // each time that it is read; nil: there is none
		mode   string
		token  error
		writes int // what is said to writes, 0: fine
		did    []string
		want   string
	}{
		"new":                      {seen: []*v1alpha1.Agent{nil}, did: []string{"POST"}},
		"known":                    {seen: []*v1alpha1.Agent{there()}, token: withdrawn, did: []string{"PATCH"}},
		"gone":                     {seen: []*v1alpha1.Agent{nil}, token: withdrawn, want: "the token was withdrawn"},
		"going":                    {seen: []*v1alpha1.Agent{deleting}, want: "is being deleted"},
		"of another mode":          {seen: []*v1alpha1.Agent{there()}, mode: "autonomous", want: "is managed on the hub, but the token is for mode autonomous"},
		"goes while it is written": {seen: []*v1alpha1.Agent{there(), nil}, token: withdrawn, writes: http.StatusNotFound, did: []string{"PATCH"}, want: "the token was withdrawn"},
		"changes and goes":         {seen: []*v1alpha1.Agent{there(), deleting}, writes: http.StatusConflict, did: []string{"PATCH"}, want: "is being deleted"},
		"changes all the time":     {seen: []*v1alpha1.Agent{there()}, writes: http.StatusConflict, did: slices.Repeat([]string{"PATCH"}, 5), want: pki.ErrBusy.Error()},
		"made by others, and gone": {seen: []*v1alpha1.Agent{nil}, writes: http.StatusConflict, did: slices.Repeat([]string{"POST"}, 5), want: pki.ErrBusy.Error()},
	} {
		var did []string
		reads := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := http.StatusOK, any(map[string]any{"metadata": map[string]any{"name": "w1"}})
			if r.Method == http.MethodGet {
				if a := test.seen[min(reads, len(test.seen)-1)]; a != nil {
					body = a
				} else {
					status = http.StatusNotFound
				}
				reads++
			} else {
				did = append(did, r.Method)
				status = cmp.Or(test.writes, status)
			}
			switch status {
			case http.StatusNotFound:
				notFound(w, r)
				return
			case http.StatusConflict:
				conflict(w)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(body)
		}))
		client, err := kube.NewClient(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		err = Registrations{Registry: NewRegistry(RegistryConfig{Client: client, Namespace: "argocd"})}.Register(t.Context(), pki.JoinGrant{Agent: "w1", Mode: cmp.Or(test.mode, "managed")}, func() error { return test.token })
		server.Close()
		if !slices.Equal(did, test.did) || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: it did %q, %v", title, did, err)
		}
	}
}

// storedAgent is an API server with one Agent. It merges annotations of patches.
type storedAgent struct {
	v1alpha1.Agent
	revision int
	events   []string
	before   func() // is called once before the next patch is applied
}

func (s *storedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost { // of an Event
		var event struct {
			Type, Reason, Message string
			InvolvedObject        struct{ Kind, Name, UID string }
		}
		_ = json.NewDecoder(r.Body).Decode(&event)
		s.events = append(s.events, strings.Join([]string{event.Type, event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.InvolvedObject.UID, event.Message}, " "))
		fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		return
	}
	if r.Method == http.MethodPatch {
		if s.before != nil {
			before := s.before
			s.before = nil
			before()
		}
		var patch struct {
			Metadata struct {
				ResourceVersion string
				Annotations     map[string]*string
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&patch)
		if patch.Metadata.ResourceVersion != fmt.Sprint(s.revision) {
			conflict(w)
			return
		}
		s.revision++
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		for key, value := range patch.Metadata.Annotations {
			if value == nil {
				delete(s.Annotations, key)
			} else {
				s.Annotations[key] = *value
			}
		}
	}
	s.ResourceVersion = fmt.Sprint(s.revision)
	_ = json.NewEncoder(w).Encode(s.Agent)
}

// replica returns the Registrations of a principal replica, whose revoked certificates are added to a list.
func (s *storedAgent) replica(t *testing.T, revoked *[]string) (Registrations, *testRegistry) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t)
	d.cfg.Client = client
	return Registrations{Registry: d.Registry, Revoke: func(_ context.Context, _ string, all map[string]time.Time, _ time.Time) error {
		*revoked = append(*revoked, slices.Sorted(maps.Keys(all))...)
		return nil
	}}, d
}

func entry(name, key string) pki.RecordEntry {
	return pki.RecordEntry{Fingerprint: fingerprintOf(name), Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second), Key: key, KeyStored: true}
}

// presented is the certificate with which an agent renews, if its issuer is not known.
func presented(name string) pki.RecordEntry { return pki.RecordEntry{Fingerprint: fingerprintOf(name)} }

// A clone of an agent's key is detected, whichever principal replicas the two clients use, also after a restart. The agent
// is suspended until it joins again. Then all of its earlier certificates are revoked.
func TestRenew_ClonedKeySuspendsAgent(t *testing.T) {
	stored := &storedAgent{Agent: agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "u1" }), revision: 1}
	var revoked []string
	one, _ := stored.replica(t, &revoked)
	two, registry := stored.replica(t, &revoked)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	must(one.RecordJoined(ctx, "w1", entry("a", "k1")))
	must(two.RecordRenewed(ctx, "w1", presented("a"), entry("b", "k2")))
	must(one.RecordRenewed(ctx, "w1", presented("a"), entry("c", "k2"))) // its answer was lost
	if len(stored.events) > 0 || stored.Annotations[v1alpha1.ReusedAnnotation] != "" {
		t.Fatalf("a false alarm: %v", stored.events)
	}
	err := two.RecordRenewed(ctx, "w1", presented("a"), entry("d", "thief"))
	if refused := new(enroll.Error); !errors.As(err, &refused) || refused.Temporary || !strings.Contains(err.Error(), "two clients have its key") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(stored.Annotations[issuedAnnotation], fingerprintOf("d")) || len(stored.events) != 1 ||
		!strings.HasPrefix(stored.events[0], "Warning CertificateReused Agent w1 u1 a certificate of generation 1 was renewed again") {
		t.Errorf("recorded %s, events %q", stored.Annotations[issuedAnnotation], stored.events)
	}
	registry.see(stored.Agent)
	if why := registry.DenyReason("w1"); !strings.Contains(why, "agent join-token w1") {
		t.Errorf("connections are denied because %q", why)
	}
	// Neither of them can renew, the newest certificate included.
	for _, with := range []string{"a", "b", "c"} {
		if err := one.RecordRenewed(ctx, "w1", presented(with), entry("e", "k3")); err == nil {
			t.Errorf("%s was renewed", with)
		}
	}
	if why, err := one.DenyReason(ctx, "w1", "managed"); err != nil || why != "" {
		t.Errorf("it cannot join: %s, %v", why, err)
	}
	must(one.RecordJoined(ctx, "w1", entry("f", "k4")))
	if want := []string{fingerprintOf("a"), fingerprintOf("b"), fingerprintOf("c")}; !slices.Equal(revoked, slices.Sorted(slices.Values(want))) {
		t.Errorf("revoked %q", revoked)
	}
	if stored.Annotations[v1alpha1.ReusedAnnotation] != "" {
		t.Error("it is still suspended")
	}
	must(two.RecordRenewed(ctx, "w1", presented("f"), entry("g", "k5")))
}

// An agent has a certificate that the hub before this one issued, and this hub was promoted without having received that.
func TestRenew_PromotedHubRecordsCertificateOfPreviousHub(t *testing.T) {
	at := issuedAt
	ctx := t.Context()
	for promoted, want := range map[uint64]string{0: "the hub has no record of this certificate", 2: ""} {
		stored := &storedAgent{Agent: agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "u1" }), revision: 1}
		var revoked []string
		before, _ := stored.replica(t, &revoked)
		if err := before.RecordJoined(ctx, "w1", at(1, entry("a", "k1"))); err != nil {
			t.Fatal(err)
		}
		hub, d := stored.replica(t, &revoked)
		hub.Promoted = promoted
		var log bytes.Buffer
		d.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		missed := at(5, entry("b", "k2"))
		stored.before = func() { stored.revision++ } // a conflict
		err := hub.RecordRenewed(ctx, "w1", missed, at(9, entry("c", "k3")))
		logged := strings.Count(log.String(), "Recorded certificate of the previous hub")
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || logged != 0 {
				t.Errorf("promoted %d: %v, logged %q", promoted, err, log.String())
			}
			continue
		}
		if err != nil || logged != 1 || !strings.Contains(log.String(), fingerprintOf("b")) {
			t.Fatalf("%v, logged %q", err, log.String())
		}
		// The deletion of the Agent revokes both.
		all := agentCertificates(&agentRecord{Agent: stored.Agent}, pki.ParseRecord(stored.Annotations[issuedAnnotation]))
		if _, ok := all[fingerprintOf("b")]; !ok || len(all) != 3 {
			t.Errorf("it would revoke %v", all)
		}
		if err := hub.RecordRenewed(ctx, "w1", at(9, entry("c", "k3")), at(12, entry("d", "k4"))); err != nil || strings.Count(log.String(), "previous hub") != 1 {
			t.Errorf("the next renewal: %v, logged %q", err, log.String())
		}
		// A thief of the key that this hub knew.
		if err := hub.RecordRenewed(ctx, "w1", at(1, entry("a", "k1")), at(13, entry("e", "thief"))); err == nil || !strings.Contains(err.Error(), "two clients have its key") || len(stored.events) != 1 {
			t.Errorf("%v, events %q", err, stored.events)
		}
		if err := hub.RecordJoined(ctx, "w1", at(14, entry("f", "k5"))); err != nil || !slices.Contains(revoked, fingerprintOf("b")) {
			t.Errorf("it joined again: %v, revoked %q", err, revoked)
		}
		if r := pki.ParseRecord(stored.Annotations[issuedAnnotation]); r[len(r)-1].Hub != promoted {
			t.Errorf("recorded %v", r)
		}
	}
}

// issuedAt returns a certificate that was issued at a minute.
func issuedAt(minute int, e pki.RecordEntry) pki.RecordEntry {
	e.Issued = time.Unix(0, 0).UTC().Add(time.Duration(minute) * time.Minute)
	return e
}

// A thief renews with a certificate that the promoted hub has never recorded, after the agent did. When the agent joins again, this
// certificate is revoked too.
func TestRenew_CertificateOfPreviousHubThatWasReusedIsRevoked(t *testing.T) {
	ctx, at := t.Context(), issuedAt
	stored := &storedAgent{Agent: agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "u1" }), revision: 1}
	var revoked []string
	before, _ := stored.replica(t, &revoked)
	hub, _ := stored.replica(t, &revoked)
	hub.Promoted = 2
	ofThief := at(5, entry("c", "kc"))
	if err := errors.Join(before.RecordJoined(ctx, "w1", at(1, entry("b", "kb"))), hub.RecordRenewed(ctx, "w1", at(1, entry("b", "kb")), at(9, entry("d", "kd")))); err != nil {
		t.Fatal(err)
	}
	if err := hub.RecordRenewed(ctx, "w1", ofThief, at(10, entry("e", "thief"))); err == nil || stored.Annotations[v1alpha1.ReusedAnnotation] == "" {
		t.Fatalf("no alarm: %v", err)
	}
	if err := hub.RecordJoined(ctx, "w1", at(20, entry("f", "kf"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "d", "c"} {
		if !slices.Contains(revoked, fingerprintOf(name)) {
			t.Errorf("certificate %s is not revoked", name)
		}
	}
	if err := hub.RecordRenewed(ctx, "w1", at(20, entry("f", "kf")), at(21, entry("g", "kg"))); err != nil {
		t.Errorf("the agent cannot renew: %v", err)
	}
}

// Two requests at the same time are decided one after the other.
func TestRenew_ConcurrentClonesAreDetected(t *testing.T) {
	for key, alarm := range map[string]bool{"k2": false, "thief": true} {
		stored := &storedAgent{Agent: agent("w1", 1, "managed"), revision: 1}
		var revoked []string
		one, _ := stored.replica(t, &revoked)
		two, _ := stored.replica(t, &revoked)
		if err := one.RecordJoined(t.Context(), "w1", entry("a", "k1")); err != nil {
			t.Fatal(err)
		}
		stored.before = func() {
			if err := two.RecordRenewed(t.Context(), "w1", presented("a"), entry("b", key)); err != nil {
				t.Errorf("the first: %v", err)
			}
		}
		if err := one.RecordRenewed(t.Context(), "w1", presented("a"), entry("c", "k2")); (err != nil) != alarm {
			t.Errorf("key %s: %v", key, err)
		}
	}
}

// The Agent changes between decision and write, and the second decision is another one.
func TestRenew_ConflictIsDecidedAgain(t *testing.T) {
	stored := &storedAgent{Agent: agent("w1", 1, "managed"), revision: 1}
	var revoked []string
	one, _ := stored.replica(t, &revoked)
	if err := one.RecordJoined(t.Context(), "w1", entry("a", "k1")); err != nil {
		t.Fatal(err)
	}
	joined := stored.Annotations[issuedAnnotation]
	if err := one.RecordRenewed(t.Context(), "w1", presented("a"), entry("b", "k2")); err != nil {
		t.Fatal(err)
	}
	stored.before = func() { // a user restores the Agent from a backup
		stored.Annotations[issuedAnnotation] = joined
		stored.revision++
	}
	if err := one.RecordRenewed(t.Context(), "w1", presented("a"), entry("c", "k3")); err != nil || len(stored.events) > 0 || stored.Annotations[v1alpha1.ReusedAnnotation] != "" {
		t.Errorf("%v, events %q, suspended %q", err, stored.events, stored.Annotations[v1alpha1.ReusedAnnotation])
	}
}
