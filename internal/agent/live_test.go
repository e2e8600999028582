package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// redisForTest starts a Redis of its own, and returns how to reach it and how to ask it something.
func redisForTest(t *testing.T) (redis.Endpoint, func(request string) (reply string)) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if testing.Short() {
			t.Skip("needs redis-server")
		}
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(dir, "s")
	process := exec.CommandContext(context.Background(), program, "--port", "0", "--unixsocket", address, "--save", "", "--dir", dir)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = os.RemoveAll(dir)
	})
	ask := func(request string) string {
		conn, err := net.Dial("unix", address)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		reply := make([]byte, 256)
		n := 0
		if _, err = conn.Write([]byte(request + "\r\n")); err == nil {
			n, err = conn.Read(reply)
		}
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(reply[:n]))
	}
	await(t, "Redis answers", func() bool { return ask("PING") == "+PONG" })
	return redis.Endpoint{Address: address}, ask
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("does not come true: %s", what)
		}
	}
}

// An agent that starts learns of Applications later than of their trees, and Argo CD tells of a tree only when it changes.
func TestObjectsAreKnownOfAnApplicationThatIsYoungerThanItsTree(t *testing.T) {
	endpoint, ask := redisForTest(t)
	if got := ask(`SET app|resources-tree|shop|1.8.3 '{"nodes":[{"kind":"Pod","namespace":"shop","name":"web"}]}'`); got != "+OK" {
		t.Fatal(got)
	}
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
	await(t, "the agent listens to changes", func() bool { return ask("PUBSUB NUMPAT") == ":1" })
	belongs := func() bool {
		_, ok := l.objects.Belongs("", "Pod", "shop", "web")
		return ok
	}
	if belongs() {
		t.Fatal("the pod belongs to an Application that is not there")
	}
	l.know("argocd", "shop", true)
	await(t, "the pod belongs to the Application", belongs)
	l.know("argocd", "shop", false)
	if belongs() {
		t.Error("the pod still belongs to an Application that is gone")
	}
}
