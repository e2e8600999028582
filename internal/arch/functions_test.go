package arch

import (
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// ARCHITECTURE.md describes the life of an edit and of a log request as steps with function names. The functions must
// exist, so that a reader can follow the steps in the code.
func TestArchitectureDocument_NamesExistingFunctions(t *testing.T) {
	fsys, _ := thisModule(t)
	text, err := fs.ReadFile(fsys, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, _ := loadThisModule(t)
	for _, title := range []string{"The life of an edit", "The life of a log request"} {
		_, section, found := strings.Cut(string(text), "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		names := functionNames(section)
		if !found || len(names) < 10 {
			t.Errorf("section %q names only %d functions", title, len(names))
		}
		for _, violation := range checkFunctions(sources, names) {
			t.Error(violation)
		}
	}
}

func TestCheckFunctions_ReportsMissingFunctions(t *testing.T) {
	sources := parse(t, map[string]string{
		"internal/a/a.go":      "package a\n\ntype T struct{}\n\nfunc (t *T) do() {}\n\nfunc F() {}\n",
		"internal/a/a_test.go": "package a\n\nfunc onlyTest() {}\n",
	})
	names := functionNames("1. `a.T.do` calls `a.F`, not `a.G`, `a.onlyTest`, `b.F` nor `/path.x` in `a.go`.")
	got := checkFunctions(sources, names)
	if len(got) != 3 || !strings.Contains(got[0], "a.G") || !strings.Contains(got[1], "a.onlyTest") || !strings.Contains(got[2], "b.F") {
		t.Errorf("got %q, want a.G, a.onlyTest and b.F", got)
	}
}

var functionName = regexp.MustCompile("`([a-z]+\\.(?:[A-Za-z]+\\.)?[A-Za-z]+)`")

// functionNames returns the names package.Function and package.Type.Method in a text.
func functionNames(text string) []string {
	var names []string
	for _, found := range functionName.FindAllStringSubmatch(text, -1) {
		if !strings.HasSuffix(found[1], ".go") {
			names = append(names, found[1])
		}
	}
	return names
}

// checkFunctions returns one line for each name that no file outside tests declares. A type counts too.
func checkFunctions(sources []source, names []string) []string {
	declared := map[string]bool{}
	for _, file := range sources {
		if file.test {
			continue
		}
		for _, d := range file.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[file.ast.Name.Name+"."+receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						declared[file.ast.Name.Name+"."+spec.Name.Name] = true
					}
				}
			}
		}
	}
	var violations []string
	for _, name := range names {
		if !declared[name] {
			violations = append(violations, fmt.Sprintf("ARCHITECTURE.md: there is no %s", name))
		}
	}
	return violations
}

// receiver returns "Type." of a method, or "".
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if index, ok := expr.(*ast.IndexExpr); ok {
		expr = index.X
	}
	if ident, ok := expr.(*ast.Ident); ok {
		return ident.Name + "."
	}
	return ""
}
