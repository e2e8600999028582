package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// allow registers autonomous agent w1 with what it may set on the hub.
func (p *pair) allow(allow kind.Allow) {
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Autonomous, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1", Allow: allow}})
}

// withRights has an autonomous agent with a project and an Application that have a role and subscriptions.
func withRights(t *testing.T, allow kind.Allow) *pair {
	t.Helper()
	p := newPair(t, kind.Autonomous)
	p.allow(allow)
	p.user(kind.Spoke, projectRef("web"), strings.Replace(project("web", "{}", `,"destinations":[],"roles":[{"name":"r","groups":["admins"],"policies":["p, proj:web:r, applications, *, web/*, allow"]}]`),
		`"labels"`, `"annotations":{"notifications.argoproj.io/subscribe.x.slack":"ops"},"labels"`, 1))
	p.user(kind.Spoke, ref("argocd", "a"), strings.Replace(app("argocd", "a", "web", "v1"),
		`"metadata":{`, `"metadata":{"annotations":{"notifications.argoproj.io/subscribe.x.slack":"ops"},`, 1))
	p.connect()
	return p
}

func (p *pair) expectRights(what string, roles, notifications bool) {
	p.t.Helper()
	replica, application := p.stores[kind.Hub].objects[projectRef("w1-web")], p.stores[kind.Hub].objects[ref("w1", "a")]
	if replica == nil || application == nil {
		p.t.Fatalf("%s: replicas are missing", what)
	}
	if got := replica.Get("spec", "roles") != nil; got != roles {
		p.t.Errorf("%s: roles on the hub are %v, want %v", what, got, roles)
	}
	for _, o := range []*kind.Object{replica, application} {
		if got := o.Annotation("notifications.argoproj.io/subscribe.x.slack") != ""; got != notifications {
			p.t.Errorf("%s: subscription on %s is %v, want %v", what, o.Name(), got, notifications)
		}
	}
}

// expectRest expects that nothing is written, requested, rejected or reported as lost for two hours.
func (p *pair) expectRest(what string) {
	p.t.Helper()
	writes := p.writes
	p.waitSeconds(7200)
	if p.writes != writes {
		p.t.Errorf("%s: %d writes at rest: the replicas must count as equal", what, p.writes-writes)
	}
	s, _ := p.sides[kind.Hub].Status("w1")
	for _, sc := range s.Scopes {
		if sc.Rejected != 0 || sc.Diverged != 0 {
			p.t.Errorf("%s: scope %s: %d rejected, %d diverged", what, sc.Name, sc.Rejected, sc.Diverged)
		}
	}
	if got := p.hubCondition("a"); strings.Contains(got, "FieldsDropped") {
		p.t.Errorf("%s: what is not allowed is reported as lost: %s", what, got)
	}
}

func TestAllow_RefusedRightsCountAsEqual(t *testing.T) {
	p := withRights(t, kind.Allow{})
	p.expectRights("by default", false, false)
	p.expectRest("by default")
	// A new session relies on what is recorded: nothing is requested.
	p.disconnect()
	writes, requests := p.writes, 0
	p.sent = func(m engine.Message) {
		switch m.(type) {
		case engine.Ask, engine.Want:
			requests++
		}
	}
	p.connect()
	if p.writes != writes || requests != 0 {
		t.Errorf("a new session caused %d writes and %d requests", p.writes-writes, requests)
	}
	// Edits of the agent still arrive.
	p.user(kind.Spoke, ref("argocd", "a"), strings.Replace(app("argocd", "a", "web", "v2"),
		`"metadata":{`, `"metadata":{"annotations":{"notifications.argoproj.io/subscribe.x.slack":"all"},`, 1))
	if got := string(p.stores[kind.Hub].objects[ref("w1", "a")].Get("spec", "source", "targetRevision")); got != `"v2"` {
		t.Errorf("the hub has revision %s", got)
	}
	p.expectRights("after an edit", false, false)
	p.expectRest("after an edit")
}

func TestAllow_ChangeUpdatesReplicas(t *testing.T) {
	p := withRights(t, kind.Allow{})
	for _, allow := range []kind.Allow{{Roles: true}, {Roles: true, Notifications: true}, {Notifications: true}, {}, {Roles: true, Notifications: true}, {}} {
		p.allow(allow)
		p.disconnect()
		p.connect()
		p.waitSeconds(30)
		p.expectRights("after the change", allow.Roles, allow.Notifications)
		p.expectRest("after the change")
	}
}

// An agent that is disconnected, or that never answers, cannot keep its rights.
func TestAllow_RightsAreRemovedWithoutAgent(t *testing.T) {
	p := withRights(t, kind.Allow{Roles: true, Notifications: true})
	p.expectRights("allowed", true, true)
	p.disconnect()
	p.allow(kind.Allow{})
	p.expectRights("no longer allowed, disconnected", false, false)
	// Another principal replica that has not seen the change writes them again.
	stale := p.stores[kind.Hub].objects[projectRef("w1-web")]
	o, err := stale.WithSpec([]byte(strings.Replace(string(stale.Get("spec")), `{`, `{"roles":[{"name":"r"}],`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	p.step(kind.Hub, Observed{Resource: kind.AppProjects, Object: p.stores[kind.Hub].put(projectRef("w1-web"), o.Raw(), false)})
	p.expectRights("written by a stale process", false, false)
	p.connect()
	p.waitSeconds(30)
	p.expectRights("connected again", false, false)
	p.expectRest("connected again")
}

// A project of the hub that has the name of a replica is the hub's.
func TestAllow_ProjectsOfHubKeepTheirRoles(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	roles := `,"destinations":[],"roles":[{"name":"r"}]`
	p.user(kind.Hub, projectRef("w1-own"), project("w1-own", "{}", roles))
	p.user(kind.Hub, projectRef("w1-marked"), strings.Replace(project("w1-marked", "{}", roles), `"labels"`, `"annotations":{"`+kind.AgentNameAnnotation+`":"w1"},"labels"`, 1))
	p.connect()
	for _, name := range []string{"w1-own", "w1-marked"} {
		if p.stores[kind.Hub].objects[projectRef(name)].Get("spec", "roles") == nil {
			t.Errorf("%s lost its roles", name)
		}
	}
}
