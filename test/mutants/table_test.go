package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exportData returns an importer for all imports of the core packages.
func exportData(t *testing.T, root string, fset *token.FileSet) types.Importer {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export", "os"}
	for _, p := range packages {
		args = append(args, "./internal/"+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// typeErrors returns why a package does not compile with the replaced files.
func typeErrors(t *testing.T, dir string, replaced map[string][]byte, fset *token.FileSet, imports types.Importer) []error {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range replaced {
		if filepath.Dir(name) == dir && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		var source any
		if content, ok := replaced[name]; ok {
			source = content
		}
		file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	var found []error
	conf := types.Config{Importer: imports, Error: func(err error) { found = append(found, err) }}
	_, _ = conf.Check(dir, fset, files, nil)
	return found
}

func TestTable_MatchesCode(t *testing.T) {
	mutants, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 60 {
		t.Errorf("the table has %d mutants, which is fewer than 60", len(mutants))
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, err := overlay(root, []mutant{m}); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	replaced, err := overlay(root, mutants)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	imports := exportData(t, root, fset)
	for _, p := range packages {
		for _, err := range typeErrors(t, filepath.Join(root, "internal", p), replaced, fset, imports) {
			t.Error(err)
		}
	}
}

func TestTable_Parses(t *testing.T) {
	got, err := parseTable("# a comment\n\nname  engine/guard.go  guard.absent\n- suspect || (\n+ (\nbreaks it\n\n\nother kind/marks.go f\n- x\n+\nbreaks that\nredundant: y holds\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []mutant{
		{name: "name", file: "engine/guard.go", function: "guard.absent", before: "suspect || (", after: "(", breaks: "breaks it"},
		{name: "other", file: "kind/marks.go", function: "f", before: "x", breaks: "breaks that", redundant: "y holds"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	for _, text := range []string{
		"name engine/guard.go\n- a\n+ b\nbreaks it",
		"name engine/guard.go f\n- a\n+ b",
		"name engine/guard.go f\n- a\n+ a\nbreaks it",
		"name engine/guard.go f\n+ a\n- b\nbreaks it",
		"name engine/guard.go f\n- a\n+ b\nbreaks it\nand more",
	} {
		if got, err := parseTable(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestMutant_RequiresUniqueText(t *testing.T) {
	source := []byte("package p\n\nfunc a(int, ...string) int { return 1 }\n\ntype t struct{}\n\nfunc (*t) a() { _ = 1 + 1 }\n")
	for _, c := range []struct {
		function, before, want string
	}{
		{"a", "1", "func a(p0 int, p1 ...string) int {\n\tswitch mutantActive {\n\tcase \"m\":\n\t\treturn a__1(p0, p1...)\n\tdefault:\n\t\treturn a__0(p0, p1...)\n\t}\n}\n"},
		{"a", "1", "func a__1(int, ...string) int { return 2 }"},
		{"a", "1", "func a__0(int, ...string) int { return 1 }"},
		{"t.a", "1 +", "//line mutant-m:7\nfunc (*t) a__1() { _ = 2 1 }"},
		{"t.a", "1", ""},
		{"a", "absent", ""},
		{"b", "1", ""},
	} {
		changed, err := withMutants("p.go", source, []mutant{{name: "m", function: c.function, before: c.before, after: "2"}})
		if c.want == "" && err == nil {
			t.Errorf("%s in %s: changed to %s", c.before, c.function, changed)
		}
		if c.want != "" && (err != nil || !strings.Contains(string(changed), c.want)) {
			t.Errorf("%s in %s: %v, %s", c.before, c.function, err, changed)
		}
	}
}

func TestRun_NamesFailedTest(t *testing.T) {
	for _, c := range []struct{ out, want string }{
		{"ok\n--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\nFAIL", "TestA/b"},
		{"--- FAIL: TestA (0.1s)\npanic: boom [recovered]\n", "TestA"},
		{"fatal error: runtime: out of memory\n", "runtime: out of memory"},
		{"", "timeout"},
	} {
		if got := failedTest([]byte(c.out), "timeout"); got != c.want {
			t.Errorf("%q: %q, want %q", c.out, got, c.want)
		}
	}
	if got := failedSeed([]byte("seed 12: violation: x\n"), "failure"); got != "seed 12" {
		t.Errorf("got %q", got)
	}
}

func TestRun_FailsOnUndocumentedSurvivor(t *testing.T) {
	m := mutant{name: "m", file: "engine/guard.go"}
	documented := m
	documented.redundant = "it holds anyway"
	for name, c := range map[string]struct {
		result result
		fails  bool
	}{
		"noticed":                  {result{mutant: m, run: true, killer: "TestA"}, false},
		"survivor":                 {result{mutant: m, run: true}, true},
		"redundant":                {result{mutant: documented, run: true}, false},
		"redundant, but noticed":   {result{mutant: documented, run: true, killer: "seed 7", seed: true}, true},
		"not run, budget is spent": {result{mutant: m}, false},
	} {
		if err := report(io.Discard, []result{c.result}, 1, 0); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}
