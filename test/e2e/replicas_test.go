package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
)

// controller finishes operations as the Argo CD application controller does, and counts them.
type controller struct {
	mu  sync.Mutex
	ran map[string]int // by Application and command ID
}

// run finishes every operation until the context ends.
func (c *controller) run(ctx context.Context, s *clusterClient) {
	for ctx.Err() == nil {
		list, err := s.client.Resource(applications).Namespace(lab.ArgoCDNamespace).List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				c.finish(ctx, s, &list.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *controller) finish(ctx context.Context, s *clusterClient, u *unstructured.Unstructured) {
	operation, found, _ := unstructured.NestedMap(u.Object, "operation")
	if !found || len(operation) == 0 {
		return
	}
	id := u.GetName() + "/" + commandID(operation)
	delete(u.Object, "operation")
	set(u, "status.operationState", map[string]any{"phase": "Succeeded", "operation": operation,
		"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"})
	if _, err := s.client.Resource(applications).Namespace(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{}); err == nil {
		c.mu.Lock()
		c.ran[id]++
		c.mu.Unlock()
	}
}

func commandID(operation map[string]any) string {
	info, _, _ := unstructured.NestedSlice(operation, "info")
	for _, entry := range info {
		if one, ok := entry.(map[string]any); ok && one["name"] == "argocd-agent/command" {
			return fmt.Sprint(one["value"])
		}
	}
	return ""
}

// TestPrincipalReplicas has two principal replicas for one hub, and an address that leads to either of them.
func TestPrincipalReplicas(t *testing.T) {
	t.Parallel()
	w := newEnv(t, setup{lab: lab.New(t, lab.Options{Bare: true}), agents: []agentSetup{
		{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	port := w.freePort(t)
	args := replaceFlag(slices.Clone(w.principal.args), "--listen-port", port)
	args = replaceFlag(replaceFlag(args, "--healthz-port", "0"), "--resource-proxy-port", w.freePort(t))
	second := newProgram(filepath.Base(w.folder)+"-second", w.logs(), append(args, "--replica-name", "second")...)
	t.Cleanup(func() { second.signal(9) })
	first := w.principal
	to := func(a *agent, port string) { a.link.SetTarget("127.0.0.1:" + port) }

	ctx, cancel := context.WithCancel(t.Context())
	seen := &controller{ran: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() { seen.run(ctx, w.managed().spoke) })
	t.Cleanup(func() { cancel(); wg.Wait() })

	second.start(t)
	to(w.autonomous(), port) // one agent each
	w.start(t)
	made, clicks := 0, 0
	work := func() { // changes of users
		for range 5 {
			name := fmt.Sprintf("app-%02d", made)
			made++
			w.hub.app("managed", name).create(t, simple("managed"))
			w.autonomous().spoke.app(lab.ArgoCDNamespace, name).create(t, simple("in-cluster"))
		}
	}
	click := func() { // a sync of every idle Application
		for i := range made {
			app := w.hub.app("managed", fmt.Sprintf("app-%02d", i))
			app.becomes(t, noOperation)
			call, cancel := call()
			_, err := app.in().Patch(call, app.name, types.MergePatchType, []byte(`{"operation":{"sync":{"revision":"abc"}},"status":{"operationState":null}}`), metav1.PatchOptions{})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			clicks++
		}
	}
	settled := func() {
		t.Helper()
		await(t, "all Applications on both sides", func() error {
			if err := countIs(w.managed().spoke, lab.ArgoCDNamespace, made, "", ""); err != nil {
				return err
			}
			return countIs(w.hub, "autonomous", made, "", "")
		})
		for i := range made {
			w.hub.app("managed", fmt.Sprintf("app-%02d", i)).becomes(t, noOperation, phase("Succeeded"))
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if len(seen.ran) != clicks {
			t.Errorf("%d commands were given, and %d carried out", clicks, len(seen.ran))
		}
		for id, times := range seen.ran {
			if times != 1 {
				t.Errorf("%s was carried out %d times", id, times)
			}
		}
	}

	work()
	click()
	settled()

	first.kill(t) // during other work
	work()
	click()
	to(w.managed(), port)
	w.connected(t)
	settled()

	first.start(t)
	click()
	for _, a := range w.agents { // the address leads to the other replica, and the connection breaks
		to(a, w.port)
		a.link.Reset()
	}
	work()
	second.kill(t)
	w.connected(t)
	click()
	settled()

	second.start(t)
	for i := range made {
		if i%2 == 0 {
			w.hub.app("managed", fmt.Sprintf("app-%02d", i)).delete(t)
		}
	}
	to(w.managed(), port)
	w.managed().link.Reset()
	await(t, "what was deleted to be gone", func() error { return countIs(w.managed().spoke, lab.ArgoCDNamespace, made/2, "", "") })
}
