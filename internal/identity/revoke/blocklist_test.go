package revoke

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// pageServer is an API server with ConfigMaps that rejects ConfigMaps that are too large.
type pageServer struct {
	*testing.T
	list  *Blocklist
	mu    sync.Mutex
	maps  map[string]map[string]string
	extra map[string]map[string]string // labels
}

func newPageServer(t *testing.T) *pageServer {
	t.Helper()
	s := &pageServer{T: t, maps: map[string]map[string]string{}, extra: map[string]map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.list = New(client, "argocd", &identity.Revocations{}, slog.New(slog.DiscardHandler))
	s.read()
	return s
}

func (s *pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var change struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Data map[string]*string
	}
	if err := json.Unmarshal(body, &change); err != nil {
		s.Error(err)
	}
	name := path.Base(r.URL.Path)
	if r.Method == http.MethodPost {
		name = change.Metadata.Name
	}
	data, there := s.maps[name]
	if there == (r.Method == http.MethodPost) {
		if there {
			http.Error(w, `{"reason":"AlreadyExists"}`, http.StatusConflict)
		} else {
			http.Error(w, `{"reason":"NotFound"}`, http.StatusNotFound)
		}
		return
	}
	data = maps.Clone(data)
	if data == nil {
		data = map[string]string{}
	}
	size := 0
	for key, note := range change.Data {
		if note == nil {
			delete(data, key)
		} else {
			data[key] = *note
		}
	}
	for _, note := range data {
		size += len(note)
	}
	if size > 1<<20 {
		http.Error(w, `{"message":"ConfigMap is invalid: []: Too long: may not be more than 1048576 bytes"}`, http.StatusUnprocessableEntity)
		return
	}
	s.maps[name] = data
	if s.extra[name] == nil {
		s.extra[name] = map[string]string{}
	}
	maps.Copy(s.extra[name], change.Metadata.Labels)
	fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
}

// read applies what is stored, as the first list of the watches does.
func (s *pageServer) read() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*kind.Object
	for name, data := range s.maps {
		all = append(all, listObject(s.T, name, data, s.extra[name]))
	}
	s.apply(reconcile.List{Resource: kind.ConfigMaps, Objects: all})
}

func (s *pageServer) apply(in reconcile.Input) {
	s.Helper()
	if err := s.list.Sink(func([]string) {})(s.Context(), in); err != nil {
		s.Fatal(err)
	}
}

func fingerprintOf(text string) string { return fmt.Sprintf("%X", sha256.Sum256([]byte(text))) }

// A hub that recreates clusters deletes more agents during the lifetime of a certificate than fit into one ConfigMap.
func TestBlocklist_UsesSeveralPages(t *testing.T) {
	const many = 6000
	s := newPageServer(t)
	revocations := s.list.revocations
	now := time.Now()
	name := func(i int) string { return fmt.Sprintf("team-a-cluster-%04d", i) }
	for i := range many {
		certs := map[string]time.Time{fingerprintOf("own" + name(i)): now.Add(720 * time.Hour), fingerprintOf("argo" + name(i)): now.Add(8760 * time.Hour)}
		if err := s.list.Add(t.Context(), name(i), certs, now); err != nil {
			t.Fatalf("agent %d: %v", i, err)
		}
	}
	s.read()
	for i := range many {
		if !revocations.Revoked(fingerprintOf("own"+name(i))) || !revocations.Revoked(fingerprintOf("argo"+name(i))) || revocations.Before(name(i)).IsZero() {
			t.Fatalf("agent %d is not revoked", i)
		}
	}
	entries := 0
	for name, data := range s.maps {
		entries += len(data)
		if size := growth(nil, asChange(data)); size > pageCapacity {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	t.Logf("%d entries in %d ConfigMaps", entries, len(s.maps))
	if entries != 3*many || len(s.maps) < 3 {
		t.Errorf("%d entries in %d ConfigMaps", entries, len(s.maps))
	}
	// Expired entries are removed from all pages.
	if err := s.list.Prune(t.Context(), now.Add(8760*time.Hour+entryGrace+time.Second)); err != nil {
		t.Fatal(err)
	}
	for name, data := range s.maps {
		if len(data) > 0 {
			t.Errorf("%d expired entries of %s are not removed", len(data), name)
		}
	}
}

func asChange(data map[string]string) map[string]any {
	change := map[string]any{}
	for key, note := range data {
		change[key] = note
	}
	return change
}

func TestAdd_AllPagesFull(t *testing.T) {
	s := newPageServer(t)
	now := time.Now()
	for _, name := range pagesFor("w1") {
		s.maps[name] = map[string]string{fingerprintOf(name): strings.Repeat("x", pageCapacity)}
		s.extra[name] = map[string]string{pageLabel: "x"}
	}
	s.read()
	err := s.list.Add(t.Context(), "w1", map[string]time.Time{fingerprintOf("w1"): now.Add(time.Hour)}, now)
	if err == nil || !strings.Contains(err.Error(), "argocd-agentctl blocklist tls list") {
		t.Fatalf("error %v", err)
	}
	// Expired entries make room.
	s.maps[ConfigMap+"-3"] = map[string]string{fingerprintOf("old"): "agent w0 was deleted on x" + entryExpires + "2020-01-01T00:00:00Z"}
	s.read()
	if err := s.list.Add(t.Context(), "w1", map[string]time.Time{fingerprintOf("w1"): now.Add(time.Hour)}, now); err != nil || len(s.maps[ConfigMap+"-3"]) != 2 {
		t.Errorf("%v; page: %q", err, s.maps[ConfigMap+"-3"])
	}
}

// The counted size is not the whole object: users can add metadata, and every key is also in the managed fields.
func TestAdd_PageTooLargeForTheAPIServer(t *testing.T) {
	s := newPageServer(t)
	s.maps[ConfigMap] = map[string]string{fingerprintOf("a"): strings.Repeat("x", 1<<20)} // not seen by the watch yet
	now := time.Now()
	s.apply(reconcile.Observed{Object: listObject(t, ConfigMap, map[string]string{}, nil)})
	if err := s.list.Add(t.Context(), "w1", map[string]time.Time{fingerprintOf("w1"): now.Add(time.Hour)}, now); err != nil {
		t.Fatal(err)
	}
	if next := pagesFor("w1")[1]; len(s.maps[next]) != 2 || s.extra[next][pageLabel] == "" || len(s.maps[ConfigMap]) != 1 {
		t.Errorf("pages %v, labels %v", slices.Sorted(maps.Keys(s.maps)), s.extra)
	}
}

// A page that was not read yet must not look empty. If two agents had one name, the later deletion counts.
func TestBlocklist_MergesPages(t *testing.T) {
	b := New(nil, "argocd", &identity.Revocations{}, slog.New(slog.DiscardHandler))
	note := func(year string) string { return "agent w1 was deleted on " + year + "-01-01T00:00:00Z" }
	labels := map[string]string{pageLabel: ""}
	first := listObject(t, ConfigMap, map[string]string{"A": "user's", deletedAgentPrefix + "w1": note("2031")}, labels)
	if _, changed := b.update(reconcile.Observed{Object: first}); changed {
		t.Error("an incomplete list would be published")
	}
	if err := b.Add(t.Context(), "w1", nil, time.Now()); err == nil || !strings.Contains(err.Error(), "not been read yet") {
		t.Errorf("error %v", err)
	}
	expect := func(in reconcile.Input, want map[string]string) {
		t.Helper()
		if all, changed := b.update(in); changed != (want != nil) || !maps.Equal(all, want) {
			t.Errorf("all entries: %v, changed %v", all, changed)
		}
	}
	more := listObject(t, ConfigMap+"-1", map[string]string{"B": "ours", deletedAgentPrefix + "w1": note("2030")}, labels)
	other := listObject(t, "argocd-cm", map[string]string{"C": "no page"}, nil)
	all := map[string]string{"A": "user's", "B": "ours", deletedAgentPrefix + "w1": note("2031")}
	expect(reconcile.List{Objects: []*kind.Object{first, more, other}}, all)
	expect(reconcile.Observed{Object: other}, nil)
	expect(reconcile.Deleted{Ref: kind.Ref{Name: "argocd-cm"}}, nil)
	expect(reconcile.Observed{Object: listObject(t, ConfigMap, map[string]string{"A": "user's", deletedAgentPrefix + "w1": note("2031")}, nil)}, all) // its label was removed
	expect(reconcile.Deleted{Ref: kind.Ref{Name: ConfigMap}}, map[string]string{"B": "ours", deletedAgentPrefix + "w1": note("2030")})
	expect(reconcile.Observed{Object: listObject(t, ConfigMap+"-1", nil, nil)}, map[string]string{}) // its label was removed
}

// listObject returns a page.
func listObject(t *testing.T, name string, data, labels map[string]string) *kind.Object {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "namespace": "argocd", "resourceVersion": "1", "labels": labels}, "data": data})
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDeletionPatch_RemovesExpiredEntries(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	deleted := func(revoked map[string]time.Time, listed map[string]string, at time.Time) map[string]any {
		patch := deletionPatch(listed, "w1", revoked, at)
		if note, ok := patch["proxy-clients.w1"].(string); !ok || entryExpired(note, at.Add(pki.ProxyClientLifetime)) || !entryExpired(note, at.Add(pki.ProxyClientLifetime+25*time.Hour)) {
			t.Errorf("entry for other certificates: %q", note)
		}
		delete(patch, "proxy-clients.w1")
		for fingerprint, note := range patch {
			if note == nil {
				delete(listed, fingerprint)
			} else {
				listed[fingerprint] = note.(string)
			}
		}
		return patch
	}
	listed := map[string]string{"user": "laptop stolen", "older": "agent w0 was deleted on 2020-01-01T00:00:00Z",
		"words": "agent w0 was seen" + entryExpires + "the first of May", "noted": "gone" + entryExpires + "2020-01-01T00:00:00Z"}
	deleted(map[string]time.Time{"soon": now.Add(time.Hour), "late": now.Add(100 * time.Hour), "unknown": {}, "user": now.Add(time.Hour)}, listed, now)
	if listed["soon"] != "agent w1 was deleted on 2030-01-01T00:00:00Z; the certificate expires on 2030-01-01T01:00:00Z" || listed["user"] != "laptop stolen" {
		t.Errorf("%q", listed)
	}
	if patch := deleted(nil, listed, now.Add(2*time.Hour)); len(patch) > 0 {
		t.Errorf("removed before the grace period: %v", patch)
	}
	deleted(map[string]time.Time{"next": now.Add(1000 * time.Hour)}, listed, now.Add(time.Hour+entryGrace+time.Second))
	if left := slices.Sorted(maps.Keys(listed)); !slices.Equal(left, []string{"late", "next", "noted", "older", "unknown", "user", "words"}) {
		t.Errorf("left: %q", left)
	}
}

func TestDeletedAgents_RevokesOlderCertificates(t *testing.T) {
	deleted := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	listed := map[string]string{fingerprintOf("a"): "stolen"}
	for key, note := range deletionPatch(listed, "w1", nil, deleted) {
		listed[key], _ = note.(string)
	}
	before, err := deletedAgents(listed)
	if err != nil || len(listed) != 1 || !before["w1"].Equal(deleted.Add(-clockTolerance)) {
		t.Errorf("before %v, left %q, %v", before, listed, err)
	}
	if _, err := deletedAgents(map[string]string{"proxy-clients.w1": "x"}); err == nil {
		t.Error("accepted an entry without a time")
	}
}
