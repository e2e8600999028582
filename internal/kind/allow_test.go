package kind

import (
	"strings"
	"testing"
)

const (
	subscribed  = `"notifications.argoproj.io/subscribe.on-sync-failed.slack":"ops"`
	subscribed2 = `"notifications.argoproj.io/subscriptions":"- trigger: [x]"`
	recipients  = `"on-sync.recipients.argocd-notifications.argoproj.io":"slack:ops"`
	recipients2 = `"recipients.argocd-notifications.argoproj.io":"slack:ops"`
)

// projectItem is an AppProject of agent "one" with a role and subscriptions.
const projectItem = `{"uid":"u","metadata":{"annotations":{"note":"n",` + subscribed + `,` + subscribed2 + `}},
	"spec":{"sourceNamespaces":["one-ns"],"destinations":[],"description":"d","roles":[{"name":"r","groups":["admins"],"policies":["p, proj:one-p:r, applications, *, one-p/*, allow"]}]}}`

const applicationItem = `{"uid":"u","metadata":{"annotations":{"note":"n",` + subscribed + `,` + recipients + `,` + recipients2 + `}},
	"spec":{"project":"one-p","destination":{"name":"one","namespace":"n"}}}`

func allowing(allow Allow) *Env {
	w := autoHub()
	w.Agent.Allow = allow
	return w
}

func expectSubscribed(t *testing.T, what string, o *Object, want bool) {
	t.Helper()
	if got := strings.Contains(string(o.Get("metadata")), "notifications.argoproj.io"); got != want {
		t.Errorf("%s: subscribed is %v, want %v: %s", what, got, want, o.Get("metadata"))
	}
	if o.Annotation("note") != "n" {
		t.Errorf("%s: another annotation is lost", what)
	}
}

func TestAllow_AutonomousAgentSetsRolesAndSubscriptionsOnlyIfAllowed(t *testing.T) {
	for _, allow := range []Allow{{}, {Roles: true}, {Notifications: true}, {Roles: true, Notifications: true}} {
		w := allowing(allow)
		o := merge(t, AppProjectKind{}, nil, named("p"), projectItem, w)
		if got := o.Get("spec", "roles") != nil; got != allow.Roles {
			t.Errorf("%+v: roles are %s", allow, o.Get("spec", "roles"))
		}
		if string(o.Get("spec", "description")) != `"d"` {
			t.Errorf("%+v: spec is %s", allow, o.Get("spec"))
		}
		expectSubscribed(t, "project", o, allow.Notifications)
		expectSubscribed(t, "Application", merge(t, ApplicationKind{}, nil, named("a"), applicationItem, w), allow.Notifications)
		for item, refused := range map[string]bool{projectItem: allow != Allow{true, true}, applicationItem: !allow.Notifications, `{"uid":"u","spec":{}}`: false} {
			if RefusesContent([]byte(item), w) != refused {
				t.Errorf("%+v: refuses is %v for %s", allow, !refused, item)
			}
		}
	}
}

// On the spoke, the hub's and the agent's own annotations count as before.
func TestAllow_ConcernsOnlyReplicasOfAutonomousAgents(t *testing.T) {
	o := merge(t, ApplicationKind{}, nil, named("a"), strings.Replace(strings.Replace(applicationItem, `"one-p"`, `"p"`, 1), `"name":"one"`, `"name":"in-cluster"`, 1), managedSpoke())
	expectSubscribed(t, "managed Application on the spoke", o, true)
	own := object(t, `{"metadata":{"name":"a","namespace":"argo","uid":"u","annotations":{"note":"n",`+subscribed+`}},"spec":{"project":"p"}}`)
	item, ok := ApplicationKind{}.Publish(own, autoSpoke())
	if !ok || !strings.Contains(string(item.Content), "subscribe.on-sync-failed") {
		t.Errorf("an autonomous agent does not publish its subscription, so that digests differ between releases: %s", item.Content)
	}
	for _, w := range []*Env{managedHub(), managedSpoke(), autoSpoke()} {
		if RefusesContent([]byte(projectItem), w) || WithoutRefused(AppProjects, project(t, `{"roles":[]}`), w).Get("spec", "roles") == nil {
			t.Errorf("side %v, mode %s: something is refused", w.Side, w.Agent.Mode)
		}
	}
}

func TestWithoutRefused_RemovesWhatAgentSet(t *testing.T) {
	all := allowing(Allow{Roles: true, Notifications: true})
	p := merge(t, AppProjectKind{}, nil, named("p"), projectItem, all)
	a := merge(t, ApplicationKind{}, nil, named("a"), applicationItem, all)
	if WithoutRefused(AppProjects, p, all) != p || WithoutRefused(Applications, a, all) != a {
		t.Error("what is allowed is changed")
	}
	none := autoHub()
	for _, c := range []struct {
		kind Kind
		o    *Object
		item string
	}{{AppProjectKind{}, p, projectItem}, {ApplicationKind{}, a, applicationItem}} {
		got := WithoutRefused(c.kind.Resource(), c.o, none)
		held, ok := c.kind.ReadReplica(c.o, none)
		if !ok {
			t.Fatal("not a replica")
		}
		if want := merge(t, c.kind, c.o, held.Key, c.item, none); !Same(got, want) {
			t.Errorf("removed:\n%s\nreceived again:\n%s", got.Raw(), want.Raw())
		}
		expectSubscribed(t, c.kind.Scope(), got, false)
		if got.Get("spec", "roles") != nil {
			t.Error("roles stay")
		}
	}
}

// A user of the hub can subscribe to a replica. The agent must not be able to remove that.
func TestAllow_SubscriptionOfHubUserStays(t *testing.T) {
	w := autoHub()
	o := merge(t, ApplicationKind{}, nil, named("a"), `{"uid":"u","spec":{"project":"one-p","destination":{"name":"one"}}}`, w)
	mine := o.withAnnotation("notifications.argoproj.io/subscribe.on-sync-failed.slack", "mine")
	if WithoutRefused(Applications, mine, w) != mine {
		t.Error("the user's subscription is removed")
	}
	const other = "notifications.argoproj.io/subscribe.on-health-degraded.slack"
	both := merge(t, ApplicationKind{}, nil, named("a"), applicationItem, allowing(Allow{Notifications: true})).withAnnotation(other, "mine")
	if after := WithoutRefused(Applications, both, w); after.Annotation(other) != "mine" || len(after.Annotations()) >= len(both.Annotations()) {
		t.Errorf("the agent's subscription and the user's become %v", after.Annotations())
	}
	again := merge(t, ApplicationKind{}, mine, named("a"), applicationItem, w)
	if got := again.Annotation("notifications.argoproj.io/subscribe.on-sync-failed.slack"); got != "mine" {
		t.Errorf("the user's subscription is %q", got)
	}
}
