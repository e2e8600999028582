package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argocd-agent/argocd-agent/lab"
)

// applicationOf returns an Application of a cluster.
func applicationOf(namespace, name, uid string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"project": "default"}}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID(uid))
	return u
}

func listOf(all ...*unstructured.Unstructured) map[key]*unstructured.Unstructured {
	list := map[key]*unstructured.Unstructured{}
	for _, u := range all {
		list[key{Namespace: u.GetNamespace(), Name: u.GetName()}] = u
	}
	return list
}

func TestCheckApp_OnlyUsersDelete(t *testing.T) {
	there := func(uid string) *unstructured.Unstructured { return applicationOf("x", "a", uid) }
	for name, c := range map[string]struct {
		app          app
		owner, spoke *unstructured.Unstructured
		want         string
	}{
		"there":                         {app{created: true, uid: "1"}, there("0"), there("1"), ""},
		"gone":                          {app{created: true, uid: "1"}, nil, nil, "no user deleted it"},
		"deleted":                       {app{created: true, deleted: true, asked: true, confirmed: true}, nil, nil, ""},
		"deleted, and there again":      {app{created: true, deleted: true, asked: true, confirmed: true}, there("0"), there("1"), "a user deleted it"},
		"a deletion without an answer":  {app{created: true, deleted: true, asked: true, uid: "1"}, there("0"), there("1"), ""},
		"created again":                 {app{created: true, uid: "1"}, there("0"), there("2"), "created again"},
		"only the owner has it":         {app{created: true, uid: "1"}, there("0"), nil, "gone from its workload cluster"},
		"without the user's finalizer":  {app{created: true, kept: true}, there("0"), there("1"), "finalizer"},
		"a creation without an answer":  {app{}, there("0"), there("1"), ""},
		"a creation that had no effect": {app{}, nil, nil, ""},
	} {
		c.app.name, c.app.mode, c.app.doubtful = "a", managed, true
		d := &drill{sites: map[string]*site{managed: {client: fake.NewSimpleDynamicClient(runtime.NewScheme())}}}
		err := d.checkApp(t.Context(), &c.app, c.owner, c.spoke)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckPlaces_NoOtherClusterAndNamespace(t *testing.T) {
	d := &drill{apps: []*app{{name: "m", mode: managed}, {name: "a", mode: autonomous}}}
	right := func() lists {
		hub := func() map[key]*unstructured.Unstructured {
			return listOf(applicationOf(managed, "m", ""), applicationOf(autonomous, "a", ""))
		}
		return lists{hubName: hub(), secondName: hub(), managed: listOf(applicationOf(lab.ArgoCDNamespace, "m", "")), autonomous: listOf(applicationOf(lab.ArgoCDNamespace, "a", ""))}
	}
	if err := d.checkPlaces(right()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ cluster, namespace, name string }{
		{autonomous, lab.ArgoCDNamespace, "m"}, {managed, lab.ArgoCDNamespace, "a"}, {managed, managed, "m"},
		{hubName, autonomous, "m"}, {secondName, managed, "a"}, {hubName, managed, "unknown"},
	} {
		all := right()
		all[c.cluster][key{Namespace: c.namespace, Name: c.name}] = applicationOf(c.namespace, c.name, "")
		if err := d.checkPlaces(all); err == nil || !strings.Contains(err.Error(), c.namespace+"/"+c.name+" on "+c.cluster) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCheckConfiguration_NothingOfOthers(t *testing.T) {
	d := &drill{objects: newObjects()}
	right := func() map[clusterResource][]string {
		return map[clusterResource][]string{
			{managed, "appprojects"}: {"default", projectName}, {managed, "secrets"}: {"drill-repository"}, {autonomous, "appprojects"}: {"default", projectName},
		}
	}
	if err := d.checkConfiguration(right()); err != nil {
		t.Error(err)
	}
	for at, name := range map[clusterResource]string{{autonomous, "secrets"}: "drill-repository", {managed, "secrets"}: "cluster-autonomous", {managed, "appprojects"}: "autonomous-drill"} {
		all := right()
		all[at] = append(all[at], name)
		if err := d.checkConfiguration(all); err == nil || !strings.Contains(err.Error(), at.resource+" "+name+" does not belong on "+at.cluster) {
			t.Errorf("%v: %v", at, err)
		}
	}
}

func TestCommands_CountSinceLastCheck(t *testing.T) {
	synced := func(times int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"history": []any{map[string]any{"id": times - 1}}}}}
	}
	a := &app{most: 3} // two of three failed
	if err := a.checkCommands(synced(1)); err != nil {
		t.Error(err)
	}
	a.most++
	if err := a.checkCommands(synced(3)); err == nil {
		t.Error("a command ran twice")
	}
	if err := a.checkCommands(&unstructured.Unstructured{}); err == nil {
		t.Error("the history is gone")
	}
	a.most, a.doubtful = 4, true
	if err := a.checkCommands(synced(2)); err != nil || a.most != 4 {
		t.Errorf("at most %d: %v", a.most, err)
	}
}

func TestLost_OnlyConfirmedOnesMayGo(t *testing.T) {
	spoke := func(name, uid string) map[key]*unstructured.Unstructured {
		return listOf(applicationOf(lab.ArgoCDNamespace, name, uid))
	}
	edited, deleting := applicationOf(lab.ArgoCDNamespace, "m", "1"), applicationOf(lab.ArgoCDNamespace, "m", "1")
	edited.Object["spec"] = map[string]any{"project": "other"}
	now := metav1.Now()
	deleting.SetDeletionTimestamp(&now)
	hub := listOf(applicationOf(managed, "m", "1"), applicationOf(autonomous, "a", "1"))
	for name, c := range map[string]struct {
		loser, confirmed string
		deleted          bool // by a user
		before, all      lists
		lost             bool
	}{
		"kept":                             {hubName, "", false, lists{managed: spoke("m", "1")}, lists{managed: spoke("m", "1")}, false},
		"gone":                             {hubName, "", false, lists{managed: spoke("m", "1")}, lists{}, true},
		"created again":                    {hubName, "", false, lists{managed: spoke("m", "1")}, lists{managed: spoke("m", "2")}, true},
		"being deleted":                    {hubName, "", false, lists{managed: spoke("m", "1")}, lists{managed: listOf(deleting)}, true},
		"overwritten":                      {hubName, "", false, lists{managed: spoke("m", "1")}, lists{managed: listOf(edited)}, true},
		"overwritten on the standby":       {hubName, "", false, lists{secondName: spoke("m", "1")}, lists{secondName: listOf(edited)}, false},
		"gone on the standby":              {hubName, "", false, lists{secondName: spoke("m", "1")}, lists{}, true},
		"gone after a confirmation":        {hubName, managed, false, lists{managed: spoke("m", "1")}, lists{}, false},
		"another cluster was confirmed":    {hubName, autonomous, false, lists{managed: spoke("m", "1")}, lists{}, true},
		"users deleted it":                 {hubName, "", true, lists{managed: spoke("m", "1")}, lists{}, false},
		"replicas of the loser":            {hubName, "", false, lists{hubName: hub}, lists{hubName: listOf(hub[key{Namespace: managed, Name: "m"}])}, false},
		"the loser's own":                  {hubName, managed, false, lists{hubName: hub}, lists{hubName: listOf(hub[key{Namespace: autonomous, Name: "a"}])}, true},
		"a workload cluster's own":         {autonomous, autonomous, false, lists{autonomous: spoke("a", "1")}, lists{}, true},
		"replicas of a workload cluster":   {managed, "", false, lists{managed: spoke("m", "1")}, lists{}, false},
		"a workload cluster lost it":       {managed, "", false, lists{hubName: hub}, lists{hubName: listOf(hub[key{Namespace: autonomous, Name: "a"}])}, true},
		"of the other workload cluster":    {managed, "", false, lists{hubName: hub}, lists{hubName: listOf(hub[key{Namespace: managed, Name: "m"}])}, false},
		"confirmed for a workload cluster": {managed, managed, false, lists{hubName: hub}, lists{}, false},
	} {
		d := &drill{active: hubName, apps: []*app{{name: "m", mode: managed, deleted: c.deleted}}}
		err := d.lost(c.loser, c.before, c.all, true, map[string]bool{c.confirmed: true})
		if _, ok := errors.AsType[violation](err); ok != c.lost || (err == nil) == c.lost {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDisconnected_EveryAgentIsThere(t *testing.T) {
	agent := func(name string, connected bool) runtime.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": agents.GroupVersion().String(), "kind": "Agent", "status": map[string]any{"connected": connected}}}
		u.SetNamespace(lab.ArgoCDNamespace)
		u.SetName(name)
		return u
	}
	for name, c := range map[string]struct {
		agents []runtime.Object
		want   string
	}{
		"both":              {[]runtime.Object{agent(managed, true), agent(autonomous, true), agent("standby", false)}, ""},
		"one not connected": {[]runtime.Object{agent(managed, true), agent(autonomous, false)}, "agent autonomous is not connected"},
		"one missing":       {[]runtime.Object{agent(autonomous, true)}, "agent managed is not connected"},
		"none":              {nil, "agent managed is not connected; agent autonomous is not connected"},
	} {
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[resource]string{agents: "AgentList"}, c.agents...)
		d := &drill{active: hubName, sites: map[string]*site{hubName: {client: client}}}
		found, err := d.disconnected(t.Context())
		if got := strings.Join(found, "; "); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAwait_ViolationEndsIt(t *testing.T) {
	d := &drill{options: options{patience: 1 << 62, out: t.Output()}}
	asked := 0
	want := violation{errors.New("deleted")}
	if err := d.await(t.Context(), func(context.Context) ([]string, error) {
		asked++
		return nil, want
	}); !errors.Is(err, want) || asked != 1 {
		t.Errorf("after %d calls: %v", asked, err)
	}
}

func TestObjectDifference_NoticesEverything(t *testing.T) {
	object := func(data, label string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec, "data": map[string]any{"url": data}}}
		u.SetLabels(map[string]string{mark: label})
		return u
	}
	spec := func(destination map[string]any, change func(spec map[string]any)) map[string]any {
		all := map[string]any{"description": "d", "destinations": []any{destination}}
		change(all)
		return all
	}
	same := func(map[string]any) {}
	set := func(field string, value any) func(map[string]any) {
		return func(spec map[string]any) { spec[field] = value }
	}
	here := func() map[string]any {
		return map[string]any{"name": "in-cluster", "server": inCluster, "namespace": protected}
	}
	owner := object("u", "1", spec(map[string]any{"name": managed, "namespace": "*"}, set("sourceNamespaces", []any{managed})))
	for name, c := range map[string]struct {
		replica *unstructured.Unstructured
		want    string
	}{
		"equal":             {object("u", "1", spec(here(), same)), ""},
		"another field":     {object("u", "1", spec(here(), set("description", "x"))), "spec.description"},
		"other clusters":    {object("u", "1", spec(map[string]any{"name": "*", "server": "*", "namespace": protected}, same)), "spec.destinations"},
		"unprotected":       {object("u", "1", spec(map[string]any{"name": "in-cluster", "server": inCluster, "namespace": "*"}, same)), "spec.destinations"},
		"other namespaces":  {object("u", "1", spec(here(), set("sourceNamespaces", []any{"*"}))), "spec.sourceNamespaces"},
		"other data":        {object("x", "1", spec(here(), same)), "data.url"},
		"another edit":      {object("u", "2", spec(here(), same)), "labels"},
		"nothing is mapped": {owner, "spec.destinations"},
	} {
		got := newObjects()[0].difference(owner, c.replica)
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
