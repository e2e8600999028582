package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
)

// heldItem is a held deletion in the output of argocd-agentctl pending.
type heldItem struct{ Agent, Kind, Description, ID string }

// held returns the held deletions of an agent from argocd-agentctl pending.
func (w *testEnv) held(t testing.TB, agent string) (found []heldItem, err error) {
	t.Helper()
	file, err := buildCLI()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "pending", agent, "-o", "json")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + w.hub.Kubeconfig, "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + lab.ArgoCDNamespace}
	out, _ := cmd.Output() // the exit code is not 0 if something is pending
	var all []heldItem
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("argocd-agentctl pending says %q: %w", out, err)
	}
	for _, one := range all {
		if one.Kind == "held" {
			found = append(found, one)
		}
	}
	return found, nil
}

// TestBudget_WrongLabelSelectorDeletesNothing restarts the principal with a selector that matches nothing. An agent
// with few Applications keeps them until a user confirms the deletion. Workloads stay in any case.
func TestBudget_WrongLabelSelectorDeletesNothing(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	before := w.principal.args
	restart := func(flags ...string) {
		t.Helper()
		w.principal.args = append(without(before), flags...)
		w.principal.restart(t)
		w.connected(t)
	}
	uids := map[string]types.UID{}
	for range 3 {
		app := w.hub.app("managed", fresh("few"))
		app.create(t, w.plain("managed", app.name).object())
		app.becomes(t, synced, healthyApp)
		uids[app.name] = spoke.app(lab.ArgoCDNamespace, app.name).get(t).GetUID()
	}
	t.Cleanup(func() { restart() })
	unchanged := func() {
		t.Helper()
		for name, uid := range uids {
			if u := spoke.app(lab.ArgoCDNamespace, name).is(t, synced, healthyApp); u.GetUID() != uid {
				t.Errorf("%s was deleted and created again", name)
			}
		}
	}
	isHeld := func() (id string) {
		t.Helper()
		w.hub.agent("managed").becomes(t, agentShows("Held", "True", "deletions of application are held"))
		await(t, "argocd-agentctl pending to list it", func() error {
			held, err := w.held(t, "managed")
			for _, one := range held {
				if strings.Contains(one.Description, "deletions of application") {
					id = one.ID
					return nil
				}
			}
			return fmt.Errorf("held: %+v, %w", held, err)
		})
		for name := range uids {
			spoke.app(lab.ArgoCDNamespace, name).becomes(t, shows("AgentHeldWarning", id))
		}
		return id
	}

	restart("--label-selector", "no=match")
	isHeld()
	unchanged()

	restart() // with the correct selector
	w.hub.agent("managed").becomes(t, agentShows("Held", "False", ""), agentShows("Synced", "True", ""))
	for name := range uids {
		spoke.app(lab.ArgoCDNamespace, name).becomes(t, showsNo("AgentHeldWarning"))
	}
	if held, err := w.held(t, "managed"); err == nil && len(held) > 0 {
		t.Errorf("still held: %+v", held)
	}
	unchanged()

	restart("--label-selector", "no=match")
	w.hub.ctl(t, "pending", "confirm", isHeld(), "--yes")
	for name := range uids {
		spoke.app(lab.ArgoCDNamespace, name).goes(t)
		spoke.object(deployments, name, "guestbook").is(t)
		w.hub.app("managed", name).is(t)
	}
}
