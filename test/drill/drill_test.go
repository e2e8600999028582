package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDrill_LosesNothing is a short drill. `make drill` runs a longer one, with restores from snapshots.
func TestDrill_LosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs real clusters, which -short leaves out")
	}
	if err := run(t.Context(), options{seed: 1, steps: 5, out: t.Output()}); err != nil {
		t.Fatal(err)
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
