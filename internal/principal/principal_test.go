package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

func TestProbesAnswerWhileTheAPIServerIsAway(t *testing.T) {
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
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || want == 503 && !strings.Contains(string(body), "API server") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestNobodyIsLetInBeforeItIsKnownWhoMayNot(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // who serves fails
	config := Config{Revocations: &identity.Revocations{}, Live: Live{Resource: listener, ResourceTLS: &tls.Config{}, Redis: listener}, Listener: listener, Log: slog.New(slog.DiscardHandler)}
	for _, what := range []string{"resource proxy", "Redis proxy"} {
		synctest.Test(t, func(t *testing.T) {
			p := &principal{cfg: config, log: config.Log, registry: &registry{ready: make(chan struct{})},
				ready: make(chan struct{}), settingsRead: make(chan struct{}), blocklists: revoke.New(nil, "argocd", nil, config.Log)}
			run := newLive(p, nil).runs()[what]
			ended := make(chan error, 1)
			go func() { ended <- run(t.Context()) }()
			for _, read := range []func(){func() { close(p.ready) }, func() { close(p.registry.ready) }, func() { close(p.settingsRead) }, func() {
				for _, sink := range p.blocklists.Watches(func([]string) {}) {
					_ = sink(t.Context(), reconcile.List{})
				}
			}} {
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("the %s served at once: %v", what, err)
				default:
				}
				read()
			}
			if err := <-ended; err == nil {
				t.Errorf("the %s did not serve", what)
			}
		})
	}
}

func TestThoseWhoAskTogetherShareAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := newRevisionReader(func(context.Context) (string, error) { asked++; return "7", nil })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if n, err := f.revision(t.Context()); n != 7 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		synctest.Wait() // all of them wait
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = f.run(ctx) })
		wg.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		cancel()
		owner.Wait()
	})
}

func TestAChoreIsTriedUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaskRunner(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = c.run(ctx) })
		tries := 0
		worked := make(chan struct{})
		c.add("a", func(context.Context) error { return errors.New("replaced before it is done") })
		c.add("a", func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("away")
			}
			close(worked)
			return nil
		})
		<-worked
		synctest.Wait()
		if c.left() != 0 {
			t.Errorf("%d are left", c.left())
		}
		cancel()
		owner.Wait()
	})
}

func TestOnlyNamespacesOfThePatternAreCreated(t *testing.T) {
	for _, c := range []struct {
		create NamespaceCreate
		name   string
		want   bool
	}{
		{NamespaceCreate{}, "a", false},
		{NamespaceCreate{Enable: true}, "a", true},
		{NamespaceCreate{Enable: true, Pattern: "team-.*"}, "team-x", true},
		{NamespaceCreate{Enable: true, Pattern: "team"}, "team-x", false},
	} {
		if _, got := c.create.allows(c.name); got != c.want {
			t.Errorf("%+v: %s: %v", c.create, c.name, got)
		}
	}
}

func TestATooLargeCrowdIsToldWhenToComeBack(t *testing.T) {
	s := &sessions{jitter: func() float64 { return 0.5 }}
	s.helloCount.Store(maxConcurrentHellos - 1)
	if retry, err := s.admit(transport.Peer{}); retry != 0 || err != nil {
		t.Errorf("not full yet: %v, %v", retry, err)
	}
	s.helloCount.Add(1)
	if retry, err := s.admit(transport.Peer{}); retry != 3*time.Second || err == nil {
		t.Errorf("full: %v, %v", retry, err)
	}
}
