package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// pureStandard lists the packages of the standard library that a pure package may import: packages that only compute. It
// excludes I/O (net, os, log), hidden state or randomness (sync, hash/maphash, unique), and reflect and unsafe.
var pureStandard = []string{
	"bytes", "cmp", "container/heap", "container/list", "crypto/sha256", "encoding", "encoding/base32",
	"encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash", "hash/fnv", "iter",
	"maps", "math", "math/bits", "math/rand/v2", "net/url", "path", "regexp", "slices", "sort", "strconv", "strings",
	"time", "unicode", "unicode/utf16", "unicode/utf8",
}

// ambient lists functions of allowed packages that read the clock or use standard streams.
var ambient = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

// seedable lists the allowed names of math/rand: generators with an explicit seed. All others use the global source.
var seedable = []string{"Rand", "Source", "Source64", "New", "NewSource", "NewPCG", "PCG", "NewChaCha8", "ChaCha8", "Zipf", "NewZipf"}

func TestPurePackages_OnlyCompute(t *testing.T) {
	sources, _ := loadThisModule(t)
	for _, violation := range checkPurity(packageRules, sources) {
		t.Error(violation)
	}
}

// checkPurity returns one line for each use of time, randomness or concurrency in a pure or seeded package.
func checkPurity(rules []packageRule, sources []source) []string {
	var violations []string
	for _, file := range sources {
		rule, known := ruleFor(rules, file.dir)
		if !known || file.test || !rule.pure && !rule.seeded || within(file.dir, rule.path+"/cmd") {
			continue // a command may use the clock and print
		}
		report := func(node ast.Node, what string) {
			violations = append(violations, fmt.Sprintf("%s: %s in %s", file.at(node.Pos()), what, rule.path))
		}
		names := map[string]string{}
		for _, imp := range file.imports() {
			if imp.name == "." {
				violations = append(violations, fmt.Sprintf("%s: dot import of %q in %s", file.at(imp.pos), imp.path, rule.path))
			}
			names[imp.name] = imp.path
		}
		ast.Inspect(file.ast, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt:
				if rule.pure {
					report(node, "go statement")
				}
			case *ast.SelectStmt:
				if rule.pure {
					report(node, "select statement")
				}
			case *ast.ChanType:
				if rule.pure {
					report(node, "channel")
				}
			case *ast.SelectorExpr:
				if what := ambientUse(names, node, rule.pure); what != "" {
					report(node, what)
				}
			}
			return true
		})
	}
	return violations
}

// ambientUse returns the name of a package-level function that reads the clock or a global source of randomness or, in a
// pure package, uses standard streams. If sel is none of these, it returns "".
func ambientUse(names map[string]string, sel *ast.SelectorExpr, pure bool) string {
	pkg, ok := sel.X.(*ast.Ident)
	if !ok || pkg.Obj != nil { // a variable, even if it is named like a package
		return ""
	}
	importPath := names[pkg.Name]
	switch {
	case importPath == "math/rand" || importPath == "math/rand/v2":
		if slices.Contains(seedable, sel.Sel.Name) {
			return ""
		}
	case importPath == "crypto/rand":
	case importPath == "fmt" && !pure:
		return ""
	case !slices.Contains(ambient[importPath], sel.Sel.Name):
		return ""
	}
	return pkg.Name + "." + sel.Sel.Name
}
