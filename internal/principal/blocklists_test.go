package principal

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// shelf is an API server that has ConfigMaps, and refuses those that are too large
// as a real one does.
type shelf struct {
	*testing.T
	lists *blocklists
	mu    sync.Mutex
	maps  map[string]map[string]string
	extra map[string]map[string]string // labels
}

func newShelf(t *testing.T, changed func(map[string]string)) *shelf {
	t.Helper()
	s := &shelf{T: t, maps: map[string]map[string]string{}, extra: map[string]map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.lists = newBlocklists(client, "argocd", changed)
	s.read()
	return s
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
			conflict(w)
		} else {
			notFound(w, r)
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

// read lets the lists see what is there, as their watchers do when they begin.
func (s *shelf) read() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, more []*kind.Object
	for name, data := range s.maps {
		if name == blocklist {
			first = append(first, listObject(s.T, name, data))
		} else if s.extra[name][pageLabel] != "" {
			more = append(more, listObject(s.T, name, data))
		}
	}
	s.lists.apply(true, reconcile.List{Resource: kind.ConfigMaps, Objects: first})
	s.lists.apply(false, reconcile.List{Resource: kind.ConfigMaps, Objects: more})
}

func printOf(text string) string { return fmt.Sprintf("%X", sha256.Sum256([]byte(text))) }

// Who recycles clusters deletes more agents in the life of a certificate than one
// ConfigMap can name.
func TestMoreAgentsThanAConfigMapHoldsCanBeDeleted(t *testing.T) {
	const many = 6000
	revocations := &identity.Revocations{}
	var ended map[string]time.Time
	s := newShelf(t, func(all map[string]string) {
		var err error
		if ended, err = deletedAgents(all); err != nil {
			t.Error(err)
		}
		if _, err := revocations.Set(slices.Collect(maps.Keys(all))); err != nil {
			t.Error(err)
		}
	})
	now := time.Now()
	name := func(i int) string { return fmt.Sprintf("team-a-cluster-%04d", i) }
	for i := range many {
		certs := map[string]time.Time{printOf("own" + name(i)): now.Add(720 * time.Hour), printOf("argo" + name(i)): now.Add(8760 * time.Hour)}
		if err := s.lists.add(t.Context(), name(i), certs, now); err != nil {
			t.Fatalf("agent %d: %v", i, err)
		}
	}
	s.read()
	for i := range many {
		if !revocations.Revoked(printOf("own"+name(i))) || !revocations.Revoked(printOf("argo"+name(i))) || ended[name(i)].IsZero() {
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
	// Once they have expired they go, also where nobody adds anything.
	if err := s.lists.prune(t.Context(), now.Add(8760*time.Hour+entryGrace+time.Second)); err != nil {
		t.Fatal(err)
	}
	for name, data := range s.maps {
		if len(data) > 0 {
			t.Errorf("%d entries of %s have expired and stay", len(data), name)
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

func TestFullListsOfRevokedCertificatesHoldTheDeletionAndSayWhatToDo(t *testing.T) {
	s := newShelf(t, func(map[string]string) {})
	now := time.Now()
	for _, name := range pagesFor("w1") {
		s.maps[name] = map[string]string{printOf(name): strings.Repeat("x", pageCapacity)}
		s.extra[name] = map[string]string{pageLabel: "x"}
	}
	s.read()
	err := s.lists.add(t.Context(), "w1", map[string]time.Time{printOf("w1"): now.Add(time.Hour)}, now)
	if err == nil || !strings.Contains(err.Error(), "argocd-agentctl blocklist tls list") {
		t.Fatalf("error %v", err)
	}
	going := look(t, v1alpha1.Status{}, nil)
	going.rec.DeletionTimestamp, going.invalid, going.secretError = &metav1.Time{Time: now}, "its Agent is being deleted", err.Error()
	is(t, going.status(), v1alpha1.ConditionRegistered, "False", "RevocationFailed: ", "argocd-agentctl blocklist tls list")
	// What has expired makes room.
	s.maps[blocklist+"-3"] = map[string]string{printOf("old"): "agent w0 was deleted on x" + entryExpires + "2020-01-01T00:00:00Z"}
	s.read()
	if err := s.lists.add(t.Context(), "w1", map[string]time.Time{printOf("w1"): now.Add(time.Hour)}, now); err != nil || len(s.maps[blocklist+"-3"]) != 2 {
		t.Errorf("%v; it has %q", err, s.maps[blocklist+"-3"])
	}
}

// The size that is counted is not all that an object has: people may have written
// much, and every key is also among the managed fields.
func TestAListThatTheAPIServerFindsTooLargeIsContinuedInTheNext(t *testing.T) {
	s := newShelf(t, func(map[string]string) {})
	s.maps[blocklist] = map[string]string{printOf("a"): strings.Repeat("x", 1<<20)} // not seen yet
	now := time.Now()
	s.lists.apply(true, reconcile.Observed{Object: listObject(t, blocklist, map[string]string{})})
	if err := s.lists.add(t.Context(), "w1", map[string]time.Time{printOf("w1"): now.Add(time.Hour)}, now); err != nil {
		t.Fatal(err)
	}
	if next := pagesFor("w1")[1]; len(s.maps[next]) != 2 || s.extra[next][pageLabel] == "" || len(s.maps[blocklist]) != 1 {
		t.Errorf("there are %v, with labels %v", slices.Sorted(maps.Keys(s.maps)), s.extra)
	}
}

// A part that was not read yet must not seem to be empty, and the later end of two
// agents of one name counts, wherever it stands.
func TestAllListsOfRevokedCertificatesAreOne(t *testing.T) {
	var all map[string]string
	b := newBlocklists(nil, "argocd", func(now map[string]string) { all = now })
	note := func(year string) string { return "agent w1 was deleted on " + year + "-01-01T00:00:00Z" }
	first := listObject(t, blocklist, map[string]string{"A": "people's", deletedAgentPrefix + "w1": note("2031")})
	b.apply(true, reconcile.List{Objects: []*kind.Object{first}})
	if all != nil {
		t.Fatalf("half of it is told: %v", all)
	}
	if err := b.add(t.Context(), "w1", nil, time.Now()); err == nil || !strings.Contains(err.Error(), "not been read yet") {
		t.Errorf("error %v", err)
	}
	more := listObject(t, blocklist+"-1", map[string]string{"B": "ours", deletedAgentPrefix + "w1": note("2030")})
	b.apply(false, reconcile.List{Objects: []*kind.Object{first, more}}) // the first, too, has the label
	if want := map[string]string{"A": "people's", "B": "ours", deletedAgentPrefix + "w1": note("2031")}; !maps.Equal(all, want) {
		t.Errorf("all of it is %v", all)
	}
	b.apply(false, reconcile.Deleted{Ref: kind.Ref{Name: blocklist}}) // its label was taken off
	if len(all) != 3 {
		t.Errorf("all of it is %v", all)
	}
	b.apply(true, reconcile.Deleted{Ref: kind.Ref{Name: blocklist}})
	if want := map[string]string{"B": "ours", deletedAgentPrefix + "w1": note("2030")}; !maps.Equal(all, want) {
		t.Errorf("all of it is %v", all)
	}
}
