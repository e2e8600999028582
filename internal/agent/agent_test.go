package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestProbes_RespondWhileAPIServerIsUnreachable(t *testing.T) {
	var lc net.ListenConfig
	health, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Cluster: &rest.Config{Host: "http://127.0.0.1:1"}, HealthListener: health, Log: slog.New(slog.DiscardHandler)})
	}()
	for path, want := range map[string]int{"/healthz": 503, "/livez": 200} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// lease is an API server that has the agent's Lease and takes every patch.
func lease(t *testing.T, annotations string, patches *[]string) *kube.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			b, _ := io.ReadAll(r.Body)
			*patches = append(*patches, string(b))
		}
		fmt.Fprintf(w, `{"metadata":{"name":"argocd-agent","resourceVersion":"3","annotations":%s}}`, annotations)
	}))
	t.Cleanup(server.Close)
	c, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIncarnation_GrowsIfTheClockGoesBack(t *testing.T) {
	var patches []string
	c := lease(t, `{"`+incarnationAnnotation+`":"5000","`+hubStoreAnnotation+`":"hub/7","`+suspectAnnotation+`":"true"}`, &patches)
	m, err := loadLeaseState(t.Context(), c, "argocd", 4000)
	if err != nil {
		t.Fatal(err)
	}
	if m.incarnation != 5001 || m.known.Store != (engine.Store{UID: "hub", Revision: 7}) || !m.known.StoreUntrusted {
		t.Errorf("recalled %+v", m)
	}
	if len(patches) != 1 || !strings.Contains(patches[0], `"5001"`) || !strings.Contains(patches[0], `"resourceVersion":"3"`) {
		t.Errorf("patches: %q", patches)
	}
}

func TestIncarnation_NotChangedByAnOlderProcess(t *testing.T) {
	var patches []string
	c := lease(t, `{}`, &patches)
	m, err := loadLeaseState(t.Context(), c, "argocd", 4000)
	if err != nil {
		t.Fatal(err)
	}
	patches = nil
	known := reconcile.Memory{Store: engine.Store{UID: "hub", Revision: 8}}
	for range 2 { // the second time there is no news
		if err := m.save(t.Context(), known); err != nil {
			t.Fatal(err)
		}
	}
	if len(patches) != 1 || strings.Contains(patches[0], incarnationAnnotation) || !strings.Contains(patches[0], "hub/8") {
		t.Errorf("patches: %q", patches)
	}
}

func TestHeartbeat_SetsTheBeaconInterval(t *testing.T) {
	for heartbeat, want := range map[time.Duration]engine.Time{0: 0, 5 * time.Second: 5 * engine.Second, time.Minute: 60 * engine.Second} {
		a := &agent{cfg: Config{Heartbeat: heartbeat}, state: &leaseState{}}
		if got := a.nodeConfig().Tuning; got != (engine.Tuning{Beacon: want}) { // 0 is the engine's default, as all others are
			t.Errorf("%s: %+v", heartbeat, got)
		}
	}
}
