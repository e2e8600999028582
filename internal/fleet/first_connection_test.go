package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// Agents and lists of revoked certificates are watched apart. An agent that was
// deleted must not come back as a new one while only the first is known, nor with
// an identity that is not in the list: of SPIFFE, a mesh or another CA.
func TestClaim_DeletedAgentIsNotReregistered(t *testing.T) {
	for title, test := range map[string]struct {
		first, more map[string]string // lists
		broken      bool
		mesh        bool // has no certificate
		require     bool // an Agent, which it has none of
		want        string
	}{
		"not revoked":  {want: ""},
		"others are":   {first: map[string]string{fingerprintOf("b"): "x"}, want: ""},
		"it is":        {first: map[string]string{fingerprintOf("a"): "x"}, want: ErrRevoked.Error()},
		"was deleted":  {first: map[string]string{"proxy-clients.w1": "x"}, want: ErrDeleted.Error()},
		"by a mesh":    {more: map[string]string{"proxy-clients.w1": "x"}, mesh: true, want: ErrDeleted.Error()},
		"another was":  {first: map[string]string{"proxy-clients.w2": "x"}, mesh: true},
		"further on":   {first: map[string]string{fingerprintOf("b"): "x"}, more: map[string]string{fingerprintOf("a"): "x"}, want: ErrRevoked.Error()},
		"unreadable":   {broken: true, want: "read ConfigMap argocd-agent-tls-blocklist"},
		"not required": {broken: true, require: true, want: ErrUnregistered.Error()},
	} {
		created := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch name := path.Base(r.URL.Path); {
			case name == "configmaps" && test.broken:
				w.WriteHeader(http.StatusServiceUnavailable)
			case name == "configmaps":
				data := test.first
				if r.URL.Query().Get("labelSelector") == kind.Prefix+"tls-blocklist" {
					data = test.more
				}
				item, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "l"}, "data": data})
				fmt.Fprintf(w, `{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":[%s]}`, item)
			case r.Method == http.MethodPost:
				created++
				_ = json.NewEncoder(w).Encode(agent("w1", 3, "managed", ofCluster("uid")))
			default:
				notFound(w, r)
			}
		}))
		client, err := kube.NewClient(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		d := newTestRegistry(t)
		d.cfg.Client, d.cfg.Revoked = client, revoke.New(client, "argocd", nil, d.cfg.Log).RevokedNow
		fingerprint := fingerprintOf("a")
		if test.mesh {
			fingerprint = ""
		}
		err = d.RecordFirstConnection(t.Context(), "w1", fingerprint, engine.Hello{Mode: "managed", ClusterUID: "uid"}, test.require)
		server.Close()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || (created > 0) != (err == nil) {
			t.Errorf("%s: %v, %d Agents were made", title, err, created)
		}
	}
}

// If registration is required, the mode comes from the Agent, never from the first connection.
func TestClaim_ModeComesFromAgent(t *testing.T) {
	for title, test := range map[string]struct {
		mode    string // of the Agent
		require bool
		want    error
		patched string // mode
	}{
		"registered":            {mode: "managed", require: true},
		"no mode":               {require: true, want: ErrNoMode},
		"no mode, not required": {patched: "autonomous"},
	} {
		t.Run(title, func(t *testing.T) {
			patched, writes := "", 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				mode := test.mode
				if r.Method == http.MethodPatch {
					writes++
					var patch struct{ Spec struct{ Mode string } }
					if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
						t.Error(err)
					}
					if patch.Spec.Mode != "" {
						patched, mode = patch.Spec.Mode, patch.Spec.Mode
					}
				}
				_ = json.NewEncoder(w).Encode(agent("w1", 3+writes, mode, ofCluster("uid")))
			}))
			defer server.Close()
			client, err := kube.NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			d := newTestRegistry(t)
			d.cfg.Client = client
			err = d.RecordFirstConnection(t.Context(), "w1", "", engine.Hello{Mode: "autonomous", ClusterUID: "uid"}, test.require)
			if !errors.Is(err, test.want) || patched != test.patched || test.want != nil && writes > 0 {
				t.Errorf("error %v, recorded mode %q, %d writes", err, patched, writes)
			}
		})
	}
}
