package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// warnings waits until a ready process reports these warnings or, without texts, none.
func warnings(t testing.TB, health string, texts ...string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	await(t, "warnings of a ready process", func() error {
		response, err := client.Get(health + "?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		switch {
		case err != nil:
			return err
		case response.StatusCode != http.StatusOK || !containsAll(string(text), texts) || strings.Contains(string(text), "warning") != (len(texts) > 0):
			return fmt.Errorf("%s:\n%s", response.Status, text)
		}
		return nil
	})
}

// TestWriteOutage_OfSpokeIsReportedOnHub lets the API server of a cluster reject writes of the agent. The agent stays
// connected and ready, because live access still works.
func TestWriteOutage_OfSpokeIsReportedOnHub(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	api, err := agent.spoke.FaultyAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	agent.with(t, "--kubeconfig", api.Kubeconfig)
	known, app := w.hub.agent("managed"), w.hub.app("managed", "refused-writes")
	api.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: faultproxy.WriteVerbs}, Do: faultproxy.Unavailable()})
	app.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "refused-writes"}.object())
	known.becomes(t, agentShows("Writable", "False", "API server responded 503"), truth("status.connected", true))
	warnings(t, agent.health, "warning writes: API server has not accepted writes since ", "503")
	warnings(t, w.health) // the hub has no outage

	api.RemoveAll()
	agent.spoke.app(lab.ArgoCDNamespace, "refused-writes").becomes(t)
	known.becomes(t, agentShows("Writable", "True", "The agent's API server accepts writes."))
	warnings(t, agent.health)
}

// TestWriteOutage_OfHubIsReported lets the API server of the hub reject writes of the principal. The principal cannot
// write a status, so its health check reports the outage.
func TestWriteOutage_OfHubIsReported(t *testing.T) {
	w := shared(t)
	api, err := w.hub.FaultyAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	before := slices.Clone(w.principal.args)
	t.Cleanup(func() {
		w.principal.args = before
		w.principal.restart(t)
	})
	w.principal.args = append(slices.Clone(before), "--kubeconfig", api.Kubeconfig)
	w.principal.restart(t)
	w.connected(t)
	warnings(t, w.health)
	api.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: faultproxy.WriteVerbs}, Do: faultproxy.Unavailable()})
	warnings(t, w.health, "warning writes: API server has not accepted writes since ", "503") // without any change: the principal renews its Lease
	w.managed().connected(t)
	api.RemoveAll()
	warnings(t, w.health)
}
