package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

// TestTraces_ArriveAtCollector checks the traces of a session, of an Application on its way to a spoke, of its status
// on the way back, and of a live access request. It needs no Argo CD.
func TestTraces_ArriveAtCollector(t *testing.T) {
	t.Parallel()
	c, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	traced := []string{"--otlp-address", c.Address(), "--otlp-insecure"}
	w := own(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}}), flags: traced,
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed", flags: append([]string{"--enable-resource-proxy=true", "--resource-proxy-level", "all"}, traced...)}}})

	connect := spanOf(t, c, ofAgent, "connect to the principal", func(s collector.Span) bool { return !s.Failed })
	accept := spanOf(t, c, ofHub, "accept an agent", childOf(connect))
	for _, step := range []string{"dial", "handshake", "wait to be accepted", "hello", "compare"} {
		spanOf(t, c, ofAgent, step, childOf(connect))
	}
	for _, step := range []string{"handshake", "admit", "wait for hello", "hello", "compare"} {
		spanOf(t, c, ofHub, step, childOf(accept))
	}
	if epoch := connect.Attributes["argocd_agent.epoch"]; epoch == "" || epoch != accept.Attributes["argocd_agent.epoch"] || connect.Attributes["argocd_agent.agent"] != "managed" {
		t.Errorf("not the same session: %v %v", connect.Attributes, accept.Attributes)
	}

	w.hub.app("managed", "looked-at").create(t, simple("managed"))
	app := w.managed().spoke.app(lab.ArgoCDNamespace, "looked-at")
	app.becomes(t)
	create := spanOf(t, c, ofAgent, "create applications", about("looked-at"))
	spanOf(t, c, ofAgent, "POST", childOf(create))
	if a := create.Attributes; a["argocd_agent.agent"] != "managed" || a["argocd_agent.outcome"] != "written" || a["argocd_agent.version"] == "" || a["argocd_agent.queue_wait_ms"] == "" {
		t.Errorf("%v", a)
	}
	spanOf(t, c, ofHub, "deliver application", func(s collector.Span) bool { return s.Trace == create.Trace && !s.Failed })
	app.patch(t, `{"status":{"health":{"status":"Healthy"}}}`)
	status := spanOf(t, c, ofHub, "update applications", func(s collector.Span) bool {
		return about("looked-at")(s) && s.Attributes["argocd_agent.reason"] == "apply status"
	})
	spanOf(t, c, ofAgent, "deliver status", func(s collector.Span) bool { return s.Trace == status.Trace && !s.Failed })
	if status.Attributes["argocd_agent.agent"] != "managed" {
		t.Errorf("%v", status.Attributes)
	}

	w.hub.app("managed", "looked-at").patch(t, `{"operation":{"sync":{}}}`) // a sync
	click := spanOf(t, c, ofHub, "deliver command", func(s collector.Span) bool { return about("looked-at")(s) && !s.Failed })
	spanOf(t, c, ofAgent, "update applications", func(s collector.Span) bool {
		return about("looked-at")(s) && s.Trace == click.Trace && s.Attributes["argocd_agent.scope"] == "command"
	})

	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	if code := getTraced(t, w.kubeconfig(t, "managed"), "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/looked-at", "00-"+trace+"-"+span+"-01"); code != http.StatusOK {
		t.Errorf("code %d", code)
	}
	request := spanOf(t, c, ofHub, "get applications", func(s collector.Span) bool { return s.Trace == trace && s.Parent == span })
	answer := spanOf(t, c, ofAgent, "get applications", childOf(request))
	if request.Attributes["http.response.status_code"] != "200" || answer.Attributes["k8s.object.name"] != "looked-at" {
		t.Errorf("%v %v", request.Attributes, answer.Attributes)
	}

	for _, p := range []*program{w.managed().program, w.principal} {
		mark := p.logOffset(t)
		if code := p.terminate(t); code != 0 || strings.Contains(p.logged(t)[mark:], "did not take all traces") {
			t.Errorf("%s ends with %d: %s", p.name, code, p.logged(t)[mark:])
		}
	}
}

const (
	ofHub   = "argocd-agent-principal"
	ofAgent = "argocd-agent-agent"
)

func childOf(parent collector.Span) func(collector.Span) bool {
	return func(s collector.Span) bool { return s.Parent == parent.ID && s.Trace == parent.Trace }
}

func about(name string) func(collector.Span) bool {
	return func(s collector.Span) bool { return s.Attributes["k8s.object.name"] == name }
}

func spanOf(t testing.TB, c *collector.Collector, service, name string, match func(collector.Span) bool) collector.Span {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	found, err := c.Find(ctx, func(s collector.Span) bool {
		return s.Resource["service.name"] == service && s.Name == name && match(s)
	})
	if err != nil {
		for _, s := range c.Spans() {
			t.Logf("%s: %s %v %s", s.Resource["service.name"], s.Name, s.Attributes, s.Why)
		}
		t.Fatalf("there is no span %q of %s", name, service)
	}
	return found
}

// getTraced sends a live access request with a traceparent.
func getTraced(t testing.TB, kubeconfig, path, parent string) int {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Traceparent", parent)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}
