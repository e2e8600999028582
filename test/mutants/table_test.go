package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// checker type-checks the packages of the core with one file replaced. It uses the export data of what they import.
type checker struct {
	root    string
	fset    *token.FileSet
	imports types.Importer
	sources map[string][]byte    // of files, relative to internal/
	parsed  map[string]*ast.File // likewise
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
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
	c := &checker{root: root, fset: token.NewFileSet(), sources: map[string][]byte{}, parsed: map[string]*ast.File{}}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(root, "internal", p, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			name := p + "/" + filepath.Base(f)
			if c.sources[name], err = os.ReadFile(f); err != nil {
				t.Fatal(err)
			}
			if c.parsed[name], err = parser.ParseFile(c.fset, name, c.sources[name], parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// check reports why a package with a changed file does not compile.
func (c *checker) check(m mutant, changed []byte) error {
	file, err := parser.ParseFile(c.fset, m.file, changed, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	files := []*ast.File{file}
	for name, f := range c.parsed {
		if name != m.file && strings.HasPrefix(name, m.pkg()+"/") {
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: c.imports}
	_, err = conf.Check("github.com/argocd-agent/argocd-agent/internal/"+m.pkg(), c.fset, files, nil)
	return err
}

func TestEveryMutantChangesOneLineAndCompiles(t *testing.T) {
	mutants, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 60 {
		t.Errorf("the table has %d mutants, which is fewer than 60", len(mutants))
	}
	c := newChecker(t)
	for _, m := range mutants {
		if !slices.Contains(packages, m.pkg()) {
			t.Errorf("mutant %s: %s is not in one of the packages %v", m.name, m.file, packages)
			continue
		}
		source, ok := c.sources[m.file]
		if !ok {
			t.Errorf("mutant %s: there is no file %s", m.name, m.file)
			continue
		}
		changed, err := m.apply(source)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := c.check(m, changed); err != nil {
			t.Errorf("mutant %s does not compile: %v", m.name, err)
		}
	}
}

func TestTableIsReadAsItIsWritten(t *testing.T) {
	got, err := parseTable("# a comment\n\nname  engine/guard.go  guard.absent\n- suspect || (\n+ (\nbreaks it\n\n\nother kind/marks.go -\n- x\n+\nbreaks that\nredundant: y holds\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []mutant{
		{name: "name", file: "engine/guard.go", function: "guard.absent", before: "suspect || (", after: "(", breaks: "breaks it"},
		{name: "other", file: "kind/marks.go", function: "-", before: "x", breaks: "breaks that", redundant: "y holds"},
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

func TestMutantAppliesOnlyToTextThatOccursOnce(t *testing.T) {
	source := []byte("package p\n\nfunc a() int { return 1 }\n\ntype t struct{}\n\nfunc (*t) a() int { return 1 + 1 }\n")
	for _, c := range []struct {
		function, before, want string
	}{
		{"a", "1", "func a() int { return 2 }"},
		{"t.a", "1 +", "return 2 1 }"},
		{"-", "package p", "2\n"},
		{"t.a", "1", ""},
		{"-", "absent", ""},
		{"b", "1", ""},
	} {
		changed, err := mutant{function: c.function, before: c.before, after: "2"}.apply(source)
		if c.want == "" && err == nil {
			t.Errorf("%s in %s: changed to %s", c.before, c.function, changed)
		}
		if c.want != "" && (err != nil || !strings.Contains(string(changed), c.want)) {
			t.Errorf("%s in %s: %v, %s", c.before, c.function, err, changed)
		}
	}
}

func TestKillerIsNamedFromTheOutput(t *testing.T) {
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

func TestSurvivorFailsTheRunUnlessItIsDocumented(t *testing.T) {
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
