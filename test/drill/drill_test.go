package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// TestDrill_LosesNothing is a short drill with a fixed number of faults and edits. `make drill` runs a longer one, with
// failovers, restores from snapshots and a rebuild.
func TestDrill_LosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs real clusters, which -short leaves out")
	}
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok { // fail with the output of the drill instead of a panic
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-time.Minute), errors.New("the time of the test run is over"))
		defer cancel()
	}
	if err := run(ctx, options{seed: 1, steps: 5, patience: 30 * time.Minute, out: t.Output()}); err != nil {
		t.Fatal(err)
	}
}

func TestStandbyDifferences_NoticesEverything(t *testing.T) {
	type object = map[string]any
	app := func(change func(metadata, spec object)) *unstructured.Unstructured {
		metadata, spec := object{"name": "a", "uid": "1"}, object{"revision": "1"}
		change(metadata, spec)
		return &unstructured.Unstructured{Object: object{"kind": "Application", "metadata": metadata, "spec": spec}}
	}
	same := app(func(object, object) {})
	type apps = map[string]*unstructured.Unstructured
	for name, c := range map[string]struct {
		active, standby apps
		want            string
	}{
		"equal": {apps{"a": same}, apps{"a": app(func(metadata, _ object) {
			metadata["uid"] = "2"
			metadata["annotations"] = object{"argocd.argoproj.io/source-uid": "1", "argocd-agent.argoproj-labs.io/standby": "{}"}
		})}, ""},
		"another spec":       {apps{"a": same}, apps{"a": app(func(_, spec object) { spec["revision"] = "2" })}, "spec is"},
		"another label":      {apps{"a": same}, apps{"a": app(func(metadata, _ object) { metadata["labels"] = object{"x": "y"} })}, "label x is"},
		"another annotation": {apps{"a": same}, apps{"a": app(func(metadata, _ object) { metadata["annotations"] = object{"x": "y"} })}, "annotation x is"},
		"another finalizer":  {apps{"a": same}, apps{"a": app(func(metadata, _ object) { metadata["finalizers"] = []any{"x/y"} })}, "finalizers is"},
		"missing":            {apps{"a": same}, apps{}, "the standby lacks a"},
		"deleted by users":   {apps{}, apps{"a": same}, "only the standby has a"},
	} {
		if got := strings.Join(standbyDifferences(c.active, c.standby), "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// pair returns an Application of users and its replica, as argocd-agent makes it.
func pair(mode string) (owner, replica map[string]any) {
	object := func(project, name, server string, finalizers ...any) map[string]any {
		destination := map[string]any{"namespace": "n", "name": name}
		if server != "" {
			destination = map[string]any{"namespace": "n", "server": server}
		}
		return map[string]any{
			"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "y"}, "annotations": map[string]any{"x": "y"}, "finalizers": finalizers},
			"spec":     map[string]any{"project": project, "destination": destination, "source": map[string]any{"path": "."}},
			"status":   map[string]any{"sync": map[string]any{"status": "Synced"}, "health": map[string]any{"status": "Healthy"}},
		}
	}
	if mode == autonomous {
		return object("p", "", "https://kubernetes.default.svc", cascade, userFinalizer), object(autonomous+"-p", autonomous, "")
	}
	return object("p", managed, "", cascade, userFinalizer), object("p", "in-cluster", "", cascade)
}

func TestDifference_NoticesEverything(t *testing.T) {
	set := func(value any, path ...string) func(map[string]any) {
		return func(u map[string]any) {
			if err := unstructured.SetNestedField(u, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	ran := func(id string) func(map[string]any) {
		return set(map[string]any{"phase": "Succeeded", "operation": map[string]any{
			"info": []any{map[string]any{"name": "drill", "value": id}}}}, "status", "operationState")
	}
	same := func(map[string]any) {}
	for name, c := range map[string]struct {
		app            app
		owner, replica func(map[string]any) // nil: it does not exist
		want           string
	}{
		"equal":               {app{}, same, same, ""},
		"both gone":           {app{}, nil, nil, ""},
		"no replica":          {app{}, same, nil, "no replica"},
		"only the replica":    {app{}, nil, same, "only the replica"},
		"other source":        {app{}, same, set("x", "spec", "source", "path"), "spec.source"},
		"other project":       {app{}, same, set("x", "spec", "project"), "spec.project"},
		"other destination":   {app{}, same, set("x", "spec", "destination", "namespace"), "spec.destination"},
		"a new field":         {app{}, set(int64(3), "spec", "revisionHistoryLimit"), same, "spec.revisionHistoryLimit"},
		"other label":         {app{}, same, set("x", "metadata", "labels", "x"), "labels"},
		"own label":           {app{}, same, set("x", "metadata", "labels", "argocd-agent.argoproj-labs.io/x"), ""},
		"other annotation":    {app{}, set("x", "metadata", "annotations", "x"), same, "annotations"},
		"no finalizer":        {app{}, same, set([]any{"x/y"}, "metadata", "finalizers"), "finalizers"},
		"other sync":          {app{}, same, set("OutOfSync", "status", "sync", "status"), "status.sync"},
		"other health":        {app{}, set("Missing", "status", "health", "status"), same, "status.health"},
		"no status yet":       {app{}, func(u map[string]any) { delete(u, "status") }, same, "status.health"},
		"no status at all":    {app{}, func(u map[string]any) { delete(u, "status") }, func(u map[string]any) { delete(u, "status") }, ""},
		"another time":        {app{}, same, set("2026-01-01T00:00:00Z", "status", "reconciledAt"), ""},
		"being deleted":       {app{}, same, set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"), "being deleted"},
		"running":             {app{}, set(map[string]any{}, "operation"), same, "not finished"},
		"ran on one side":     {app{}, same, ran("1"), "last command"},
		"another result":      {app{}, ran("1"), set("Failed", "status", "operationState", "phase"), "last command is"},
		"ran":                 {app{last: "1"}, ran("1"), ran("1"), ""},
		"a lost command":      {app{last: "2"}, ran("1"), ran("1"), "instead of 2"},
		"not known to be one": {app{last: "2", doubtful: true}, ran("1"), ran("1"), ""},
	} {
		for _, mode := range []string{managed, autonomous} {
			owner, replica := pair(mode)
			var objects [2]*unstructured.Unstructured
			for i, change := range []func(map[string]any){c.owner, c.replica} {
				if change != nil {
					u := []map[string]any{owner, replica}[i]
					change(u)
					objects[i] = &unstructured.Unstructured{Object: u}
				}
			}
			c.app.mode = mode
			if got := difference(&c.app, objects[0], objects[1]); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s, %s: %q", name, mode, got)
			}
		}
	}
}

func TestCommands_EachConfirmedOneRanOnce(t *testing.T) {
	hub := func(last string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"operationState": map[string]any{"phase": "Succeeded",
			"operation": map[string]any{"info": []any{map[string]any{"name": "drill", "value": last}}}}}}}
	}
	spoke := func(synced int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"history": []any{map[string]any{"id": synced - 1}}}}}
	}
	for name, c := range map[string]struct {
		app    app
		last   string // that the hub shows
		synced int64
		ok     bool
	}{
		"it ran":                     {app{last: "7", most: 1}, "7", 1, true},
		"another one is shown":       {app{last: "7", most: 2}, "6", 1, false},
		"its result is unknown":      {app{last: "7", most: 2, doubtful: true}, "6", 1, true},
		"it ran twice":               {app{last: "7", most: 1}, "7", 2, false},
		"a command before was lost":  {app{last: "7", most: 2, least: 1}, "7", 1, false},
		"a command before ran, too":  {app{last: "7", most: 2, least: 1}, "7", 2, true},
		"it was counted before this": {app{last: "7", ran: "7", most: 1, least: 1}, "7", 1, true},
	} {
		d := &drill{}
		d.see(&c.app, hub(c.last))
		err := errors.Join(append(d.failures, c.app.checkCommands(spoke(c.synced)))...)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckDeleted_WorkloadsGoOnlyIfUsersAsk(t *testing.T) {
	for name, c := range map[string]struct {
		app app
		uid types.UID // of the workload now; empty: it is gone
		ok  bool
	}{
		"deleted with resources":               {app{asked: true, cascade: true, workload: "1"}, "", true},
		"deleted with resources, still there":  {app{asked: true, cascade: true, workload: "1"}, "1", false},
		"deleted without resources":            {app{asked: true, workload: "1"}, "1", true},
		"deleted without resources, gone":      {app{asked: true, workload: "1"}, "", false},
		"deleted without resources, new":       {app{asked: true, workload: "1"}, "2", false},
		"lost with the hub":                    {app{cascade: true, workload: "1"}, "1", true},
		"lost with the hub, and its resources": {app{cascade: true, workload: "1"}, "", false},
		"never synced":                         {app{asked: true}, "", true},
		"deleted without resources, not seen":  {app{asked: true}, "1", true},
	} {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		if c.uid != "" {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			u.SetNamespace("a")
			u.SetName("guestbook")
			u.SetUID(c.uid)
			client = fake.NewSimpleDynamicClient(runtime.NewScheme(), u)
		}
		c.app.name, c.app.mode = "a", managed
		d := &drill{sites: map[string]*site{managed: {client: client}}}
		if err := d.checkDeleted(t.Context(), &c.app); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValue_NoConfirmedEditIsLost(t *testing.T) {
	var v value
	v.settle("0")
	v.wrote("1", nil)
	v.wrote("2", errors.New("no answer"))
	v.wrote("3", nil)
	for now, want := range map[string]bool{"0": false, "1": false, "2": true, "3": true} {
		if v.allows(now) != want {
			t.Errorf("%s may be there: %v", now, !want)
		}
	}
	if v.settle("3"); v.allows("2") {
		t.Error("an edit of an earlier time may be there")
	}
}

func TestOrder_EachClassOnceFirst(t *testing.T) {
	start := func(seed uint64) *drill {
		link := func() map[string]*faultproxy.Link { return map[string]*faultproxy.Link{"a": nil, "b": nil} }
		return &drill{options: options{seed: seed}, active: hubName, random: rand.New(rand.NewPCG(seed, 0)), sites: map[string]*site{managed: {cluster: &lab.Cluster{}}, autonomous: {cluster: &lab.Cluster{}}},
			product: &product.Product{Principal: &product.Program{}, Links: &product.Links{API: link(), Redis: link()},
				Agents: map[string]*product.Agent{managed: {}, autonomous: {}}}}
	}
	first := start(1)
	order, seen := first.order(), map[string]bool{}
	for i := range order {
		seen[first.pick(order, i+1).class] = true
	}
	if len(order) < 29 || len(seen) != len(order) {
		t.Errorf("the first %d steps have %d classes", len(order), len(seen))
	}
	if same := start(1).order(); !slices.Equal(same, order) {
		t.Errorf("the same seed has another order: %v", same)
	}
	if other := start(2).order(); slices.Equal(other, order) {
		t.Errorf("another seed has the same order: %v", other)
	}
	first.pick(order, len(order)+1) // any
}
