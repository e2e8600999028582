package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

func TestCollect_JoinsReports(t *testing.T) {
	folder := t.TempDir()
	engine, fleet, out := filepath.Join(folder, "engine.txt"), filepath.Join(folder, "fleet.json"), filepath.Join(folder, "bench.json")
	text := "goos: linux\nBenchmarkStep-2  100  30 ns/op  8 B/op\nBenchmarkStep-2  100  10 ns/op  8 B/op\nPASS\n"
	if err := os.WriteFile(engine, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &report.Report{Title: "fleet"}
	r.AtMost(1, "x", 2, "s")
	if err := r.Save(fleet); err != nil {
		t.Fatal(err)
	}
	if err := run(out, []string{engine, fleet}); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Reports []report.Report }
	if err := json.Unmarshal(body, &all); err != nil || len(all.Reports) != 2 {
		t.Fatalf("%v: %s", err, body)
	}
	if f := all.Reports[0].Figures[0]; f.What != "Step-2, ns/op" || f.Value != 20 || len(f.Values) != 2 {
		t.Errorf("%+v", f)
	}
	if all.Reports[1].Title != "fleet" {
		t.Errorf("%+v", all.Reports[1])
	}
}

func TestCollect_RejectsOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.txt")
	if err := os.WriteFile(file, []byte("PASS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{nil, {file}, {file + ".missing"}} {
		if err := run(file+".out", files); err == nil {
			t.Errorf("%v was taken for reports", files)
		}
	}
}
