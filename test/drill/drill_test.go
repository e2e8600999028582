package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	object := func(revision string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"revision": revision}}}
	}
	type apps = map[string]*unstructured.Unstructured
	for name, c := range map[string]struct {
		active, standby apps
		want            string
	}{
		"equal":            {apps{"a": object("1")}, apps{"a": object("1")}, ""},
		"another spec":     {apps{"a": object("1")}, apps{"a": object("2")}, "spec of a differs on the standby"},
		"missing":          {apps{"a": object("1")}, apps{}, "the standby lacks a"},
		"deleted by users": {apps{}, apps{"a": object("1")}, "only the standby has a"},
	} {
		if got := strings.Join(standbyDifferences(c.active, c.standby), "; "); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestDifference_NoticesEverything(t *testing.T) {
	object := func(change func(map[string]any)) *unstructured.Unstructured {
		u := map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"source": map[string]any{"path": "."}}, "status": map[string]any{}}
		change(u)
		return &unstructured.Unstructured{Object: u}
	}
	same := func(map[string]any) {}
	ran := func(id string) func(map[string]any) {
		return func(u map[string]any) {
			u["status"] = map[string]any{"operationState": map[string]any{"phase": "Succeeded", "operation": map[string]any{
				"info": []any{map[string]any{"name": "drill", "value": id}}}}}
		}
	}
	for name, c := range map[string]struct {
		app            app
		owner, replica *unstructured.Unstructured
		want           string
	}{
		"equal":               {app{}, object(same), object(same), ""},
		"both gone":           {app{}, nil, nil, ""},
		"no replica":          {app{}, object(same), nil, "no replica"},
		"only the replica":    {app{}, nil, object(same), "only the replica"},
		"other spec":          {app{}, object(same), object(func(u map[string]any) { u["spec"] = map[string]any{} }), "spec.source"},
		"being deleted":       {app{}, object(same), object(func(u map[string]any) { u["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z" }), "being deleted"},
		"running":             {app{}, object(func(u map[string]any) { u["operation"] = map[string]any{} }), object(same), "not finished"},
		"ran on one side":     {app{}, object(same), object(ran("1")), "last command"},
		"ran":                 {app{last: "1"}, object(ran("1")), object(ran("1")), ""},
		"a lost command":      {app{last: "2"}, object(ran("1")), object(ran("1")), "instead of 2"},
		"not known to be one": {app{last: "2", doubtful: true}, object(ran("1")), object(ran("1")), ""},
	} {
		if got := difference(&c.app, c.owner, c.replica); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
