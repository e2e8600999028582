package search

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
)

func TestReplicas_AreAskedForTimesOfTheirAgents(t *testing.T) {
	s, _ := newTestServer(t)
	s.cfg.Registry = fleettest.NewRegistry(t, fleettest.Agent("a", 1), fleettest.Agent("b", 2))
	now := time.Now().Unix()
	var asked []string
	down := true
	s.cfg.Others = func() []string { return []string{"one:1", ""} }
	s.cfg.InSyncOf = func(_ context.Context, address string) (map[string]int64, error) {
		asked = append(asked, address)
		if down {
			return nil, errors.New("secret-address does not answer")
		}
		return map[string]int64{"a": now - 60, "b": now + 3600, "unknown": now}, nil
	}
	get := func() string {
		t.Helper()
		code, body := get(t, s, "admin", "/v1/applications?query=freshness%3C10m")
		if code != http.StatusOK || strings.Contains(body, "secret-address") {
			t.Fatalf("%d %s", code, body)
		}
		return body
	}
	if body := get(); names(t, body) != "0 " || !strings.Contains(body, `"unansweredReplicas":2`) {
		t.Errorf("no replica answers: %s", body)
	}
	down = false
	if body := get(); names(t, body) != "0 " || len(asked) != 1 {
		t.Errorf("asked again at once: %v, %s", asked, body)
	}
	s.replicas.asked = s.replicas.asked.Add(-replicaInterval)
	if body := get(); names(t, body) != "4 a/web b/secret-web shared/of-a shared/secret-of-b" || !strings.Contains(body, `"unansweredReplicas":1`) {
		t.Errorf("one replica answers: %s", body)
	}
	times := s.InSyncTimes()
	if len(times) != 2 || times["a"] != now-60 || times["b"] > time.Now().Unix() {
		t.Errorf("%v, now %d", times, now)
	}
}
