package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// TestQueuedWrites_AreDroppedWithTheirSession overloads the spoke's API server when Applications arrive. The hub
// deletes them before any is written. If an agent without a session created them later, they would be deployed, and
// their workloads would stay.
func TestQueuedWrites_AreDroppedWithTheirSession(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	api, err := agent.spoke.FaultyAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	port := freePort(t)
	agent.with(t, "--kubeconfig", api.Kubeconfig, "--metrics-port", port)
	waiting := func(want func(n string) bool, what string) {
		t.Helper()
		await(t, what, func() error {
			if n := metric(t, port, "argocd_agent_api_writes_waiting"); !want(n) {
				return fmt.Errorf("%s writes wait", n)
			}
			return nil
		})
	}

	creates := faultproxy.Match{Verbs: []string{"create"}, Path: regexp.MustCompile(`/applications$`)}
	fault := api.Add(faultproxy.Rule{Match: creates, Do: faultproxy.TooManyRequests(30)})
	mark := agent.logOffset(t)
	spec := appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "late"}
	app := func(i int) object { return w.hub.app("managed", fmt.Sprintf("late-%d", i)) }
	app(0).create(t, spec.object())
	agent.waitForLog(t, mark, "API server does not accept writes")
	for i := 1; i < 4; i++ { // behind it
		app(i).create(t, spec.object())
	}
	waiting(func(n string) bool { return n == "3" || n == "4" }, "Applications to wait for the API server")
	w.principal.kill(t)
	agent.disconnected(t)
	asked := api.Count(creates) // none of the queued writes is attempted again
	waiting(func(n string) bool { return n == "0" }, "what the session has asked for to be given up")
	for i := range 4 {
		app(i).delete(t)
		app(i).goes(t)
	}
	fault.Remove()
	w.principal.start(t)
	w.connected(t)

	w.hub.app("managed", "after-late").create(t, spec.object())
	agent.spoke.app(lab.ArgoCDNamespace, "after-late").becomes(t)
	for i := range 4 {
		agent.spoke.app(lab.ArgoCDNamespace, fmt.Sprintf("late-%d", i)).isAbsent(t)
	}
	if n := api.Count(creates) - asked; n != 1 {
		t.Errorf("it was tried to create %d Applications since the session was over, rather than one", n)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// metric returns the value of a metric without labels, or "".
func metric(t *testing.T, port, name string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:"+port+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
