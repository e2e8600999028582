package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/lab/redistest"
)

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("does not come true: %s", what)
		}
	}
}

// An agent that starts sees Applications later than their trees, and Redis reports only changes of a tree.
func TestLiveAccess_ReadsTheTreeOfANewApplication(t *testing.T) {
	cache := redistest.Start(t, "")
	if got, err := cache.Ask("SET", "app|resources-tree|shop|1.8.3", `{"nodes":[{"kind":"Pod","namespace":"shop","name":"web"}]}`); err != nil || got != "+OK" {
		t.Fatal(got, err)
	}
	endpoint := redis.Endpoint{Address: cache.Address}
	l, err := newLive(&agent{cfg: Config{Namespace: "argocd", Live: Live{Redis: &endpoint}}, log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.trees.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	await(t, "the agent listens to changes", func() bool {
		got, err := cache.Ask("PUBSUB", "NUMPAT")
		return err == nil && got == ":1"
	})
	belongs := func() bool {
		_, ok := l.objects.OwnerOf("", "Pod", "shop", "web")
		return ok
	}
	if belongs() {
		t.Fatal("the pod belongs to an Application that is not there")
	}
	l.setApplication("argocd", "shop", true)
	await(t, "the pod belongs to the Application", belongs)
	l.setApplication("argocd", "shop", false)
	if belongs() {
		t.Error("the pod still belongs to an Application that is gone")
	}
}
