package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestBurst_LosesNoApplicationOrStatus needs no Argo CD. The test writes statuses faster than a controller would.
func TestBurst_LosesNoApplicationOrStatus(t *testing.T) {
	t.Parallel()
	const apps, rounds = 300, 5
	w := own(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}}})
	spoke := w.managed().spoke
	name := func(i int) string { return fmt.Sprintf("burst-%03d", i) }
	spec := appSpec{repo: "https://git.example/x", destination: "managed", namespace: "burst"}

	parallel(t, apps, func(i int) error { return w.hub.app("managed", name(i)).tryCreate(spec.object()) })
	await(t, "all Applications on the spoke", func() error { return countIs(spoke, lab.ArgoCDNamespace, apps, "", "") })

	for round := range rounds {
		parallel(t, apps, func(i int) error {
			patch := fmt.Sprintf(`{"status":{"sync":{"status":"Synced","revision":"%d"},"health":{"status":"Healthy"}}}`, round)
			ctx, cancel := call()
			defer cancel()
			_, err := spoke.app(lab.ArgoCDNamespace, name(i)).in().Patch(ctx, name(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
		if round == 2 { // one burst during a lost connection
			w.managed().link.Reset()
		}
	}
	last := fmt.Sprint(rounds - 1)
	await(t, "the last status of all on the hub", func() error { return countIs(w.hub, "managed", apps, "status.sync.revision", last) })

	t.Run("removal of all of them is held until confirmed", func(t *testing.T) {
		mark := w.principal.logOffset(t)
		w.principal.args = append(w.principal.args, "--label-selector", "no=match")
		w.principal.restart(t)
		line := w.principal.waitForLog(t, mark, "Deletions held", "scope=application", "confirm=")
		if err := countIs(spoke, lab.ArgoCDNamespace, apps, "", ""); err != nil {
			t.Errorf("Applications on the spoke: %v", err)
		}
		id := command.FindString(line)
		for _, i := range []int{0, apps - 1} { // each of them shows the hold and the command to confirm
			spoke.app(lab.ArgoCDNamespace, name(i)).becomes(t, shows("AgentHeldWarning", id))
		}
		confirm(t, w, line)
		await(t, "what was confirmed to go", func() error { return countIs(spoke, lab.ArgoCDNamespace, 0, "", "") })
		if err := countIs(w.hub, "managed", apps, "", ""); err != nil {
			t.Errorf("Applications on the hub: %v", err)
		}
	})
}

// parallel calls a function n times with a few goroutines.
func parallel(t *testing.T, n int, do func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// countIs counts Applications or, with a path, Applications with a value at that path.
func countIs(s *clusterClient, namespace string, n int, path, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	list, err := s.client.Resource(applications).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	count := 0
	for i := range list.Items {
		if path == "" || at(&list.Items[i], path) == value {
			count++
		}
	}
	if count != n {
		return fmt.Errorf("%d of %d", count, n)
	}
	return nil
}
