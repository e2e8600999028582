package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// showChildren registers managed agent w1 with or without child Applications, and connects it again.
func (p *pair) showChildren(mapping kind.Mapping, children bool) {
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: mapping, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1", Children: children}})
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: p.session}})
	p.wires = [2][]engine.Message{}
	p.connect()
	p.waitSeconds(70)
}

// childOf returns an Application of the workload cluster that Argo CD deploys for another one.
func childOf(parent, name string) string {
	return strings.Replace(app("argocd", name, "default", "v1"), `"metadata":{`,
		fmt.Sprintf(`"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"team":"a"},"annotations":{"argocd.argoproj.io/tracking-id":"%s:argoproj.io/Application:argocd/%s","notifications.argoproj.io/subscribe.x.slack":"ops"},`, parent, name), 1)
}

// withChild has a managed agent with Application "parent" and its child "child".
func withChild(t *testing.T, mapping kind.Mapping) (p *pair, hubChild kind.Ref) {
	t.Helper()
	p = newPair(t, kind.Managed)
	p.showChildren(mapping, true)
	hubChild = ref("w1", "child")
	parent := ref("w1", "parent")
	if mapping == kind.ByDestination {
		hubChild, parent = ref("argocd", "child"), ref("argocd", "parent")
	}
	p.user(kind.Hub, parent, app(parent.Namespace, "parent", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "child"), childOf("parent", "child"))
	return p, hubChild
}

func (p *pair) hub(r kind.Ref) *kind.Object   { return p.stores[kind.Hub].objects[r] }
func (p *pair) spoke(r kind.Ref) *kind.Object { return p.stores[kind.Spoke].objects[r] }

// setField sets a value of an object, as a user does.
func (p *pair) setField(side kind.Side, r kind.Ref, value string, path ...string) {
	p.t.Helper()
	body, err := rawjson.Set(p.stores[side].objects[r].Raw(), []byte(value), path...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.user(side, r, string(body))
}

func TestChildren_ShowOnHubReadOnly(t *testing.T) {
	for _, mapping := range []kind.Mapping{kind.ByNamespace, kind.ByDestination} {
		t.Run(string(mapping), func(t *testing.T) {
			p, child := withChild(t, mapping)
			own := ref("argocd", "child")
			before := string(p.spoke(own).Raw())
			o := p.hub(child)
			if o == nil {
				t.Fatal("the hub does not show the child")
			}
			if got := string(o.Get("spec", "destination", "name")); got != `"w1"` || o.Label("team") != "a" || len(o.Finalizers()) > 0 {
				t.Errorf("on the hub it is %s", o.Raw())
			}
			if o.Annotation("notifications.argoproj.io/subscribe.x.slack") != "" {
				t.Error("the workload cluster subscribes to notifications of the hub")
			}

			// Edits and deletions on the hub are undone.
			p.setField(kind.Hub, child, `"elsewhere"`, "spec", "source", "targetRevision")
			if got := string(p.hub(child).Get("spec", "source", "targetRevision")); got != `"v1"` {
				t.Errorf("the edit stays: %s", got)
			}
			p.setField(kind.Hub, child, `{}`, "metadata", "labels")
			p.waitSeconds(120)
			if p.hub(child).Label(kind.IgnoreSync) != "true" {
				t.Error("the label is not restored")
			}
			p.removeOnHub(child, true)
			p.waitSeconds(120)
			if p.hub(child) == nil {
				t.Error("it is not restored")
			}
			p.setField(kind.Hub, child, `["resources-finalizer.argocd.argoproj.io"]`, "metadata", "finalizers")
			p.setField(kind.Hub, child, `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")
			if len(p.hub(child).Finalizers()) > 0 {
				t.Error("a finalizer keeps the replica")
			}
			p.removeOnHub(child, true)
			p.waitSeconds(120)
			if o := p.hub(child); o == nil || o.IsDeleting() {
				t.Error("it is not restored after a deletion with cascade")
			}
			if after := string(p.spoke(own).Raw()); after != before {
				t.Errorf("the child has changed on the workload cluster:\n%s\n%s", before, after)
			}

			// Status and commands.
			p.setField(kind.Spoke, own, `{"sync":{"status":"Synced"}}`, "status")
			if got := string(p.hub(child).Get("status", "sync", "status")); got != `"Synced"` {
				t.Errorf("status on the hub: %s", got)
			}
			p.setField(kind.Hub, child, `{"sync":{"revision":"abc"}}`, "operation")
			if got := string(p.spoke(own).Get("operation")); !strings.Contains(got, "abc") {
				t.Errorf("operation on the workload cluster: %s", got)
			}
			if o := p.spoke(own); o.Annotation(kind.SourceUID) != "" || o.Annotation(kind.PrincipalUID) != "" {
				t.Errorf("it is adopted: %s", o.Raw())
			}

			// The parent prunes it.
			p.removeOnSpoke(own)
			p.waitSeconds(120)
			if p.hub(child) != nil {
				t.Error("the hub still shows it")
			}
		})
	}
}

func TestChildren_OptOutRemovesReplicasOnly(t *testing.T) {
	for _, mapping := range []kind.Mapping{kind.ByNamespace, kind.ByDestination} {
		t.Run(string(mapping), func(t *testing.T) {
			p, child := withChild(t, mapping)
			before := string(p.spoke(ref("argocd", "child")).Raw())
			kept := string(p.hub(child).Raw())
			p.showChildren(mapping, false)
			if p.hub(child) != nil {
				t.Error("the hub still shows it")
			}
			if o := p.spoke(ref("argocd", "child")); o == nil || string(o.Raw()) != before {
				t.Error("the child has changed on the workload cluster")
			}

			// A replica that is left, for example from a backup, is not sent to the workload cluster.
			p.user(kind.Hub, child, kept)
			p.waitSeconds(120)
			if o := p.spoke(ref("argocd", "child")); string(o.Raw()) != before {
				t.Errorf("the replica was sent: %s", o.Raw())
			}
		})
	}
}

func TestChildren_ReplicaIsNeverSentBack(t *testing.T) {
	for _, mapping := range []kind.Mapping{kind.ByNamespace, kind.ByDestination} {
		for what, remove := range map[string][]string{
			"label":               {"labels"},
			"annotations":         {"annotations"},
			"label, annotations":  {"labels", "annotations"},
			"nothing, deleted":    nil,
			"ownership, no label": {"annotations", "labels"},
		} {
			t.Run(string(mapping)+"/"+what, func(t *testing.T) {
				p, child := withChild(t, mapping)
				own := ref("argocd", "child")
				before := string(p.spoke(own).Raw())
				for _, field := range remove {
					p.setField(kind.Hub, child, `{}`, "metadata", field)
				}
				p.waitSeconds(120)
				p.removeOnHub(child, true)
				p.waitSeconds(120)
				if o := p.spoke(own); o == nil || string(o.Raw()) != before {
					t.Errorf("the child has changed on the workload cluster:\n%s", before)
				}
			})
		}
	}
}

func TestChildren_ApplicationOfHubKeepsItsName(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.showChildren(kind.ByNamespace, true)
	p.user(kind.Hub, ref("w1", "parent"), app("w1", "parent", "default", "v1"))
	held := strings.Replace(app("w1", "child", "default", "hub"), `"metadata":{`, `"metadata":{"labels":{"argocd-agent.argoproj-labs.io/ignore-sync":"true"},`, 1)
	p.user(kind.Hub, ref("w1", "child"), held)
	before := string(p.hub(ref("w1", "child")).Raw())
	p.user(kind.Spoke, ref("argocd", "child"), childOf("parent", "child"))
	p.waitSeconds(120)
	if after := string(p.hub(ref("w1", "child")).Raw()); after != before {
		t.Errorf("the Application of the hub has changed: %s", after)
	}
	rejected := false
	for _, e := range p.events {
		rejected = rejected || e.Type == engine.Rejected && e.Scope == kind.ChildScope && e.Code == engine.NameTaken && strings.Contains(e.Message, "exists on the hub")
	}
	if !rejected {
		t.Error("the child is not rejected with a reason")
	}
}

func TestChildren_OnlyOfManagedParents(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.showChildren(kind.ByNamespace, true)
	p.user(kind.Hub, ref("w1", "parent"), app("w1", "parent", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "of-local"), childOf("local", "of-local"))
	p.user(kind.Spoke, ref("argocd", "copied"), strings.ReplaceAll(childOf("parent", "other"), `"name":"other"`, `"name":"copied"`))
	p.user(kind.Spoke, ref("argocd", "ring"), childOf("ring", "ring"))
	p.user(kind.Spoke, ref("argocd", "grandchild"), childOf("child", "grandchild"))
	for _, name := range []string{"local", "of-local", "copied", "ring", "grandchild"} {
		if p.hub(ref("w1", name)) != nil {
			t.Errorf("the hub shows %s", name)
		}
	}
	p.user(kind.Spoke, ref("argocd", "child"), childOf("parent", "child"))
	if p.hub(ref("w1", "child")) == nil || p.hub(ref("w1", "grandchild")) == nil {
		t.Error("the hub does not show a child and its child")
	}
	p.removeOnHub(ref("w1", "parent"), true)
	p.waitSeconds(120)
	for _, name := range []string{"child", "grandchild"} {
		if p.hub(ref("w1", name)) != nil {
			t.Errorf("the hub still shows %s", name)
		}
		if p.spoke(ref("argocd", name)) == nil {
			t.Errorf("%s is gone", name)
		}
	}
}

func TestChildren_NeedAnAppProjectThatPermitsThem(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.showChildren(kind.ByNamespace, true)
	p.user(kind.Hub, ref("w1", "parent"), app("w1", "parent", "default", "v1"))
	p.user(kind.Hub, projectRef("admins"), project("admins", "{}", `,"destinations":[{"name":"other","namespace":"*"}]`))
	p.user(kind.Spoke, ref("argocd", "child"), strings.Replace(childOf("parent", "child"), `"project":"default"`, `"project":"admins"`, 1))
	p.user(kind.Spoke, ref("argocd", "lost"), strings.Replace(childOf("parent", "lost"), `"project":"default"`, `"project":"none"`, 1))
	if p.hub(ref("w1", "child")) != nil || p.hub(ref("w1", "lost")) != nil {
		t.Error("a workload cluster adds Applications to an AppProject that does not permit it")
	}
}

func TestChildren_AreOffByDefault(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "parent"), app("w1", "parent", "default", "v1"))
	p.user(kind.Spoke, ref("argocd", "child"), childOf("parent", "child"))
	if p.hub(ref("w1", "child")) != nil {
		t.Error("the hub shows a child")
	}
	// An agent that sends it anyway is refused.
	p.sides[kind.Spoke].syncs[""].env.Agent.Children = true
	p.user(kind.Spoke, ref("argocd", "child"), childOf("parent", "child"))
	if p.hub(ref("w1", "child")) != nil {
		t.Error("the hub accepts a child that it does not allow")
	}
}
