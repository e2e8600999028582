package e2e

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

const notice = "notice.argocd.argoproj.io/content"

// TestDisconnected_ApplicationsShowIt cuts the links of a managed and an autonomous agent, and restarts the principal
// in the meantime.
func TestDisconnected_ApplicationsShowIt(t *testing.T) {
	w := shared(t)
	type side struct {
		*agent
		hub, spoke object
		before     *unstructured.Unstructured
	}
	sides := map[string]*side{
		"managed":    {agent: w.managed(), hub: w.hub.app("managed", "outdated"), spoke: w.managed().spoke.app(lab.ArgoCDNamespace, "outdated")},
		"autonomous": {agent: w.autonomous(), hub: w.hub.app("autonomous", "outdated"), spoke: w.autonomous().spoke.app(lab.ArgoCDNamespace, "outdated")},
	}
	sides["managed"].hub.create(t, w.plain("managed", "outdated").object())
	sides["autonomous"].spoke.create(t, w.plain("in-cluster", "outdated").object())
	for name, s := range sides {
		w.hub.agent(name).patch(t, `{"spec":{"disconnectedAfter":"2s"}}`)
		t.Cleanup(func() { w.hub.agent(name).patch(t, `{"spec":{"disconnectedAfter":null}}`) })
		s.before = s.hub.becomes(t, synced, healthyApp, noOperation)
	}
	for _, s := range sides {
		if err := s.link.Cut(faultproxy.Refuse); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range sides {
		s.disconnected(t)
		s.hub.becomes(t, shows("AgentDisconnected", "Agent "+name+" has been disconnected since "), healthyApp, synced)
	}
	w.principal.restart(t)
	for name, s := range sides {
		u := s.hub.becomes(t, shows("AgentDisconnected", "Agent "+name+" has been disconnected since "), healthyApp, synced)
		if message, _ := conditionOf(u, "AgentDisconnected"); u.GetAnnotations()[notice] != message {
			t.Errorf("%s: the notice is %q, the condition %q", name, u.GetAnnotations()[notice], message)
		}
	}
	for _, s := range sides {
		if err := s.link.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range sides {
		s.connected(t)
		after := s.hub.becomes(t, showsNo("AgentDisconnected"), annotation(notice, ""), healthyApp, synced)
		for _, u := range []*unstructured.Unstructured{s.before, after} {
			unstructured.RemoveNestedField(u.Object, "status", "reconciledAt")
		}
		if !reflect.DeepEqual(s.before.Object["status"], after.Object["status"]) || !reflect.DeepEqual(s.before.GetAnnotations(), after.GetAnnotations()) {
			t.Errorf("%s: the Application is\n%s\nIt was\n%s", name, describe(after), describe(s.before))
		}
		if u := s.spoke.is(t, showsNo("AgentDisconnected")); u.GetAnnotations()[notice] != "" {
			t.Errorf("%s: the spoke has the notice: %v", name, u.GetAnnotations())
		}
	}
}
