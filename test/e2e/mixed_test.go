package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// older is the program of an older commit. make test-mixed builds it.
var older = flag.String("older", "", "program of an older commit, for TestMixedReleases")

// TestMixedReleases runs agents of an older commit with a principal of this tree, and the other way round.
func TestMixedReleases(t *testing.T) {
	if *older == "" {
		t.Skip("make test-mixed runs it with the program of an older commit")
	}
	l := lab.Get(t)
	replicatesSettings := olderHelp(t, "--sync-argocd-settings")
	for _, c := range []struct {
		name              string
		principal, agents string
	}{
		{"older agents", "", *older},
		{"older principal", *older, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnv(t, setup{lab: l, agents: []agentSetup{
				{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
			t.Cleanup(w.close)
			port := w.freePort(t)
			w.principal.file = c.principal
			w.principal.args = append(w.principal.args, "--metrics-port", port)
			if c.principal == "" || replicatesSettings {
				w.principal.args = append(w.principal.args, "--sync-argocd-settings")
			}
			ports := map[string]string{}
			for name, a := range w.agents {
				ports[name] = w.freePort(t)
				a.file = c.agents
				a.args = append(a.args, "--metrics-port", ports[name])
			}
			w.start(t)
			for mode, a := range w.agents {
				registered := w.hub.object(agents, lab.ArgoCDNamespace, mode)
				registered.becomes(t, agentShows("Synced", "True", ""))
				app := newCommanded(t, w, mode, "mixed")
				w.argocd(t, "app", "sync", app.name)
				app.hub.becomes(t, synced, healthyApp, noOperation, history(1))
				app.workload.is(t)
				registered.becomes(t, agentShows("Synced", "True", ""))
				if c.principal == "" { // an older principal does not know the field
					registered.becomes(t, unsupportedKinds(mode == "managed" && !replicatesSettings))
				}

				// Both sides are equal, so a new session writes nothing.
				hubApp, spokeApp := app.hub.get(t), app.spoke.get(t)
				confirmed := at(registered.get(t), "status.lastConfirmed")
				a.restart(t)
				a.connected(t)
				registered.becomes(t, agentShows("Synced", "True", ""), func(u *unstructured.Unstructured) error {
					if at(u, "status.lastConfirmed") == confirmed {
						return fmt.Errorf("not compared since %s", confirmed)
					}
					return nil
				})
				if n := sum(t, ports[mode], "argocd_agent_api_write_seconds_count"); n != 0 {
					t.Errorf("agent %s has written %v objects after its restart", mode, n)
				}
				app.hub.is(t, field("metadata.generation", at(hubApp, "metadata.generation")), field("metadata.uid", string(hubApp.GetUID())))
				app.spoke.is(t, field("metadata.generation", at(spokeApp, "metadata.generation")), field("metadata.uid", string(spokeApp.GetUID())), history(1))
				if n := sum(t, ports[mode], "argocd_agent_unexpected_messages_total"); n != 0 {
					t.Errorf("agent %s got %v messages of scopes that it does not know", mode, n)
				}

				app.owner.delete(t)
				app.owner.goes(t)
				app.hub.goes(t)
				app.spoke.goes(t)
				app.workload.goes(t)
				registered.becomes(t, agentShows("Synced", "True", ""))
			}
			if n := sum(t, port, "argocd_agent_principal_unexpected_messages_total"); n != 0 {
				t.Errorf("the principal got %v messages of scopes that it does not know", n)
			}
		})
	}
}

// unsupportedKinds checks whether an Agent lists kinds that its agent does not replicate.
func unsupportedKinds(want bool) condition {
	return func(u *unstructured.Unstructured) error {
		kinds, _, _ := unstructured.NestedStringSlice(u.Object, "status", "unsupportedKinds")
		if (len(kinds) > 0) != want {
			return fmt.Errorf("kinds that the agent does not replicate: %v", kinds)
		}
		return nil
	}
}

// olderHelp reports whether the help of the older principal has a text.
func olderHelp(t testing.TB, text string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), *older, "principal", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Contains(string(out), text)
}

// sum returns the sum of all samples of a metric.
func sum(t testing.TB, port, name string) float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:"+port+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	total, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		if sample, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && (sample == name || strings.HasPrefix(sample, name+"{")) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			total, found = total+n, true
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return total
}
