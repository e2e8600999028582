package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// soon limits responses that must come within a second. Timeouts of Argo CD and clients are much longer.
const soon = 10 * time.Second

// clusterRow is a row of the Argo CD cluster page.
type clusterRow struct {
	Name string
	Info struct {
		ConnectionState   struct{ Status, Message string }
		ServerVersion     string
		ApplicationsCount json.Number
		CacheInfo         struct{ ResourcesCount, ApisCount json.Number }
	}
}

func (w *testEnv) cluster(name string) (clusterRow, error) {
	client, err := w.HTTPClient()
	if err != nil {
		return clusterRow{}, err
	}
	response, err := client.Get("https://" + w.ArgoCD.Address + "/api/v1/clusters")
	if err != nil {
		return clusterRow{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return clusterRow{}, err
	}
	var answer struct{ Items []clusterRow }
	if err := json.Unmarshal(text, &answer); err != nil {
		return clusterRow{}, fmt.Errorf("%w: %s", err, text)
	}
	for _, row := range answer.Items {
		if row.Name == name {
			return row, nil
		}
	}
	return clusterRow{}, fmt.Errorf("no cluster %s in %s", name, text)
}

// pageShows waits until the Argo CD cluster page shows a state of a cluster.
func (w *testEnv) pageShows(t testing.TB, name string, is func(clusterRow) bool) {
	t.Helper()
	await(t, "the cluster page to show the state of "+name, func() error {
		row, err := w.cluster(name)
		if err == nil && !is(row) {
			err = fmt.Errorf("it shows %+v", row)
		}
		return err
	})
}

func clusterPage(t *testing.T, w *testEnv) {
	t.Helper()
	managedSubject(t, w, "counted")
	is := func(status, message string) func(clusterRow) bool {
		return func(r clusterRow) bool {
			return r.Info.ConnectionState.Status == status && r.Info.ConnectionState.Message == "Agent: 'managed' is "+message+" with principal"
		}
	}
	w.pageShows(t, "managed", is("Successful", "connected"))
	w.pageShows(t, "managed", func(r clusterRow) bool {
		resources, err := r.Info.CacheInfo.ResourcesCount.Int64()
		return r.Info.ServerVersion != "" && r.Info.ApplicationsCount != "" && r.Info.ApplicationsCount != "0" && err == nil && resources > 0
	})
	w.managed().kill(t)
	w.pageShows(t, "managed", is("Failed", "disconnected"))
	w.managed().start(t)
	w.pageShows(t, "managed", is("Successful", "connected"))
	w.managed().connected(t)

	// After the principal has stopped, the entries expire. The page must not continue to show "connected".
	hub := w.hub
	keys := hub.redisKeys(t, "cluster|info|*agentName=managed*")
	if len(keys) == 0 {
		t.Fatal("there is no entry of the cluster page in the hub's Redis")
	}
	for key, seconds := range keys {
		if seconds <= 0 || seconds > 60 {
			t.Errorf("%s lives for %d seconds, not for a minute", key, seconds)
		}
	}
}

// redisKeys lists the keys of a cluster's Redis with their TTL in seconds.
func (s *clusterClient) redisKeys(t testing.TB, pattern string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for key := range strings.FieldsSeq(s.redisDo(t, "--scan", "--pattern", pattern)) {
		seconds := 0
		_, _ = fmt.Sscan(s.redisDo(t, "TTL", key), &seconds)
		found[key] = seconds
	}
	return found
}

func interruptions(t *testing.T, w *testEnv) {
	t.Helper()
	s := managedSubject(t, w, "interrupted")
	pod := s.pod(t)
	watch, whole := s.watchTree(t), t
	watch.shows(t, "one pod", func(f tree) bool { return len(f.of("Pod")) == 1 })
	again := func(t *testing.T, replicas int) { // everything works again, including the open stream
		t.Helper()
		s.scale(t, replicas)
		watch.shows(t, fmt.Sprintf("%d pods", replicas), func(f tree) bool { return len(f.of("Pod")) == replicas })
		await(t, "a manifest", func() error {
			_, err := s.try(http.MethodGet, "/resource", s.query(configMapKind, s.workload, "settings"), nil)
			return err
		})
	}

	t.Run("the agent is disconnected", func(t *testing.T) {
		if err := w.managed().link.Cut(faultproxy.Refuse); err != nil {
			t.Fatal(err)
		}
		w.pageShows(t, "managed", func(r clusterRow) bool { return r.Info.ConnectionState.Status == "Failed" })
		quick(t, "a manifest", func() error {
			_, err := s.try(http.MethodGet, "/resource", s.query(configMapKind, s.workload, "settings"), nil)
			return refusedWith(err, "agent managed is disconnected since")
		})
		quick(t, "logs", func() error {
			text, err := s.try(http.MethodGet, "/pods/"+pod+"/logs", s.query(podKind, s.workload, pod, "podName", pod, "container", "web"), nil)
			if err == nil {
				err = errors.New(text)
			}
			return refusedWith(err, "agent managed is disconnected since")
		})
		quick(t, "the last known tree", func() error {
			_, err := s.try(http.MethodGet, "/resource-tree", nil, nil)
			return err
		})
		quick(t, "an Application that is made in the meantime", func() error {
			out, err := w.tryArgocd(t, "app", "create", "in-between", "-N", "managed", "--project", "default", "--dest-name", "managed",
				"--dest-namespace", "in-between", "--repo", w.RepoURL("plain"), "--path", ".")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Cleanup(func() { w.hub.app("managed", "in-between").discard(t) })
		if err := w.managed().link.Restore(); err != nil {
			t.Fatal(err)
		}
		w.managed().connected(t)
		again(t, 2)
	})
	t.Run("the agent is restarted", func(t *testing.T) {
		w.managed().restart(t)
		w.managed().connected(t)
		again(t, 1)
	})
	t.Run("the principal is restarted", func(t *testing.T) {
		w.principal.restart(t)
		w.connected(t)
		again(t, 2)
	})
	t.Run("the Redis of the spoke is restarted", func(t *testing.T) {
		if err := w.Restart(t.Context(), "managed/redis"); err != nil {
			t.Fatal(err)
		}
		s.scale(t, 1) // the Argo CD controller writes a tree only if it changes
		await(t, "the tree to be written again", func() error {
			_, err := s.try(http.MethodGet, "/resource-tree", nil, nil)
			return err
		})
		watch = s.watchTree(whole) // Argo CD ends a stream that reads its tree before that
		again(t, 1)
	})
	t.Run("the Redis of the hub is restarted", func(t *testing.T) {
		if err := w.Restart(t.Context(), "hub/redis"); err != nil {
			t.Fatal(err)
		}
		again(t, 2)
	})
}

// quick fails unless a function succeeds in time.
func quick(t *testing.T, what string, do func() error) {
	t.Helper()
	begin := time.Now()
	err := do()
	took := time.Since(begin)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if took > soon {
		t.Errorf("%s took %v", what, took)
	}
	t.Logf("%s took %v", what, took.Round(time.Millisecond))
}

// refusedWith returns nil if the error contains a text.
func refusedWith(err error, text string) error {
	if err == nil {
		return errors.New("it was not refused")
	}
	if !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%w, which does not say %q", err, text)
	}
	return nil
}
