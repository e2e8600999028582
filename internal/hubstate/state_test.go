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

// store is an API server with one ConfigMap. A write under an old resourceVersion is a conflict.
type store struct {
	revision int
	data     map[string]string // nil if there is no ConfigMap
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var given struct {
		Metadata struct{ ResourceVersion, UID, Namespace string }
		Data     map[string]*string
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
			s.data = map[string]string{}
		}
		for key, value := range given.Data {
			if delete(s.data, key); value != nil {
				s.data[key] = *value
			}
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": s.data,
		"metadata": map[string]any{"name": ConfigMap, "namespace": "argocd", "uid": "m-1", "resourceVersion": fmt.Sprint(s.revision)}})
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
	s.Role, s.Predecessor = Standby, engine.Store{UID: "store-2"}
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
	s.Role, s.Generation, s.Predecessor = Active, 2, engine.Store{}
	if err := Write(ctx, client, "argocd", first, s); err != nil {
		t.Fatal(err)
	}
	if got, _, err := Read(ctx, client, "argocd", "u-1"); got != s || err != nil {
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
