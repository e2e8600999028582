package hubstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

var valid = map[string]string{"identity": "u-1", "role": "standby", "generation": "3", "predecessor": "store-2/17"}

func TestParse_ReadsAllKeys(t *testing.T) {
	want := State{Identity: "u-1", Role: Standby, Generation: 3, Predecessor: engine.Store{UID: "store-2", Revision: 17}}
	if got, err := Parse(valid); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, role := range []Role{Active, Standby} {
		if got, err := Parse(map[string]string{"identity": "u", "role": string(role), "generation": "1"}); got != (State{Identity: "u", Role: role, Generation: 1}) || err != nil {
			t.Errorf("%s: %+v, %v", role, got, err)
		}
	}
}

// A state that is not certain must not make a hub active.
func TestParse_RefusesWhatIsNotCertain(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"identity", "", "identity"},
		{"identity", "u/1", "identity"},
		{"identity", " u", "identity"},
		{"identity", strings.Repeat("u", 129), "identity"},
		{"role", "", "must be active or standby"},
		{"role", "Active", "must be active or standby"},
		{"generation", "", "positive number"},
		{"generation", "0", "positive number"},
		{"generation", "-1", "positive number"},
		{"generation", "01", "positive number"},
		{"generation", "1 ", "positive number"},
		{"generation", "18446744073709551616", "positive number"},
		{"generation", "2147483648", "at most 2147483647"},
		{"predecessor", "", "a slash and a revision"},
		{"predecessor", "store-2", "a slash and a revision"},
		{"predecessor", "/17", "a slash and a revision"},
		{"predecessor", "store-2/", "a slash and a revision"},
		{"predecessor", "store-2/1/7", "a slash and a revision"},
		{"predecessor", "store-2/x", "a slash and a revision"},
		{"lease", "a", `key "lease" is unknown`},
	} {
		data := maps.Clone(valid)
		data[c.key] = c.value
		got, err := Parse(data)
		if got != (State{}) || !errors.As(err, new(*InvalidError)) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), ConfigMap) {
			t.Errorf("%s=%q: %+v, %v", c.key, c.value, got, err)
		}
	}
	for _, key := range []string{"identity", "role", "generation"} {
		data := maps.Clone(valid)
		delete(data, key)
		if _, err := Parse(data); err == nil {
			t.Errorf("without %s: no error", key)
		}
	}
}

func TestOf_WithoutConfigMapTheHubIsAlone(t *testing.T) {
	if got, err := Of(nil, "u-9"); got != Alone("u-9") || got.Role != Active || got.Generation != 1 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{`{"metadata":{"name":"argocd-agent-hub"}}`, `{"metadata":{"name":"argocd-agent-hub"},"data":{"role":1}}`} {
		o, err := kind.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Of(o, "u-9"); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPromoted_OnlyOfActiveHubWithPredecessor(t *testing.T) {
	other := engine.Store{UID: "other"}
	for _, c := range []struct {
		state State
		want  uint64
	}{
		{Alone("u"), 0},
		{State{Identity: "u", Role: Active, Generation: 3}, 0}, // rebuilt
		{State{Identity: "u", Role: Standby, Generation: 3, Predecessor: other}, 0},
		{State{Identity: "u", Role: Active, Generation: 3, Predecessor: other}, 3},
	} {
		if got := c.state.Promoted(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.state, got, c.want)
		}
	}
}

// What is not certain counts as unknown: a standby then does not take over, and its content is compared before a promotion.
func TestOf_IgnoresInvalidAnnotations(t *testing.T) {
	for _, c := range []struct {
		role, proven, active string
		want                 State
	}{
		{"standby", "2026-03-01T12:00:00Z", "2", State{ProvenAt: 1772366400, WasActive: 2}},
		{"standby", "2026-03-01T13:00:00+01:00", "3", State{ProvenAt: 1772366400, WasActive: 3}},
		{"standby", "1772366400", "4", State{}}, // later than the generation of the hub
		{"standby", "1000-01-01T00:00:00Z", "-1", State{}},
		{"active", "2026-03-01T12:00:00Z", "1", State{WasActive: 1}},
	} {
		o, err := kind.Parse(fmt.Appendf(nil, `{"metadata":{"name":"argocd-agent-hub","annotations":{%q:%q,%q:%q}},"data":{"identity":"u","role":%q,"generation":"3"}}`,
			provenAnnotation, c.proven, wasActiveAnnotation, c.active, c.role))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Of(o, "u")
		if err != nil || got.ProvenAt != c.want.ProvenAt || got.WasActive != c.want.WasActive {
			t.Errorf("%s %s %s: %+v, %v", c.role, c.proven, c.active, got, err)
		}
	}
}

// store is an API server with one ConfigMap. A write under an old resourceVersion is a conflict.
type store struct {
	revision    int
	data        map[string]string // nil if there is no ConfigMap
	annotations map[string]string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var given struct {
		Metadata struct {
			ResourceVersion, UID, Namespace string
			Annotations                     map[string]*string
		}
		Data map[string]*string
	}
	_ = json.Unmarshal(body, &given)
	status := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":%q,"details":{"kind":"configmaps","name":%q},"code":%d}`, reason, ConfigMap, code)
	}
	switch {
	case r.Method == http.MethodPost && s.data != nil:
		status(http.StatusConflict, "AlreadyExists")
		return
	case r.Method != http.MethodPost && s.data == nil:
		status(http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodPatch && (given.Metadata.ResourceVersion != fmt.Sprint(s.revision) || given.Metadata.UID != "m-1"):
		status(http.StatusConflict, "Conflict")
		return
	case r.Method != http.MethodGet:
		s.revision++
		if s.data == nil {
			s.data, s.annotations = map[string]string{}, map[string]string{}
		}
		merge(s.data, given.Data)
		merge(s.annotations, given.Metadata.Annotations)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": s.data,
		"metadata": map[string]any{"name": ConfigMap, "namespace": "argocd", "uid": "m-1", "annotations": s.annotations, "resourceVersion": fmt.Sprint(s.revision)}})
}

// merge is a merge patch.
func merge(m map[string]string, patch map[string]*string) {
	for key, value := range patch {
		if delete(m, key); value != nil {
			m[key] = *value
		}
	}
}

func TestWrite_ReadsBackAndRefusesAnOldView(t *testing.T) {
	server := httptest.NewServer(&store{revision: 5})
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s, none, err := Read(ctx, client, "argocd", "u-1")
	if s != Alone("u-1") || none != nil || err != nil {
		t.Fatalf("%+v, %v, %v", s, none, err)
	}
	s.Role, s.Predecessor = Standby, engine.Store{UID: "store-2", Mark: engine.HistoryMark{Record: "agent-7", Number: 3}}
	s.ProvenAt, s.WasActive = 1772366400, 1
	if err := Write(ctx, client, "argocd", none, s); err != nil {
		t.Fatal(err)
	}
	if err := Write(ctx, client, "argocd", none, s); !kube.IsConflict(err) {
		t.Errorf("created twice: %v", err)
	}
	got, first, err := Read(ctx, client, "argocd", "u-other")
	if got != s || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if at := first.Annotation(provenAnnotation); at != "2026-03-01T12:00:00Z" {
		t.Errorf("the time is stored as %q", at)
	}
	s = Activate(s, 2)
	s.Predecessor = engine.Store{}
	if err := Write(ctx, client, "argocd", first, s); err != nil {
		t.Fatal(err)
	}
	got, second, err := Read(ctx, client, "argocd", "u-1")
	if got != s || err != nil || second.Annotation(markAnnotation) != "" || second.Annotation(provenAnnotation) != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Write(ctx, client, "argocd", first, s); !kube.IsConflict(err) {
		t.Errorf("old view: %v", err)
	}
}

func TestWrite_RefusesWhatReadWouldRefuse(t *testing.T) {
	for _, s := range []State{{}, {Identity: "u", Role: Active}, {Identity: "u", Role: "other", Generation: 1}, {Identity: "u", Role: Active, Generation: 1, Predecessor: engine.Store{UID: "a b"}}} {
		if err := Write(t.Context(), nil, "argocd", nil, s); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
