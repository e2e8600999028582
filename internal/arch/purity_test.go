package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// pureStandard is what a pure room may import of the standard library: packages that compute. Absent are all that reach
// out (net, os, log, …), hide state or randomness (sync, hash/maphash, unique), or look through types (reflect, unsafe).
var pureStandard = []string{
	"bytes", "cmp", "container/heap", "container/list", "crypto/sha256", "encoding", "encoding/base32",
	"encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash", "hash/fnv", "iter",
	"maps", "math", "math/bits", "math/rand/v2", "net/url", "path", "regexp", "slices", "sort", "strconv", "strings",
	"time", "unicode", "unicode/utf16", "unicode/utf8",
}

// ambient lists what an otherwise welcome package offers that reads the world behind a caller's back.
var ambient = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
}

// seedable is all that may be used of math/rand: a generator that somebody seeded. Everything else draws from a global.
var seedable = []string{"Rand", "Source", "Source64", "New", "NewSource", "NewPCG", "PCG", "NewChaCha8", "ChaCha8", "Zipf", "NewZipf"}

func TestPureRoomsOnlyCompute(t *testing.T) {
	sources, _ := loadThisModule(t)
	for _, violation := range checkPurity(packageRules, sources) {
		t.Error(violation)
	}
}

// checkPurity returns one line for each place where a pure or seeded room reaches for time, chance or concurrency.
func checkPurity(house []packageRule, sources []source) []string {
	var violations []string
	for _, file := range sources {
		room, known := roomOf(house, file.dir)
		if !known || file.test || !room.pure && !room.seeded || within(file.dir, room.path+"/cmd") {
			continue // a command below a room is where its clock and its printing belong
		}
		report := func(node ast.Node, what string) {
			violations = append(violations, fmt.Sprintf("%s: %s in %s", file.at(node.Pos()), what, room.path))
		}
		names := map[string]string{}
		for _, imp := range file.imports() {
			if imp.name == "." {
				violations = append(violations, fmt.Sprintf("%s: dot import of %q in %s", file.at(imp.pos), imp.path, room.path))
			}
			names[imp.name] = imp.path
		}
		ast.Inspect(file.ast, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt:
				if room.pure {
					report(node, "go statement")
				}
			case *ast.SelectStmt:
				if room.pure {
					report(node, "select statement")
				}
			case *ast.ChanType:
				if room.pure {
					report(node, "channel")
				}
			case *ast.SelectorExpr:
				if what := ambientUse(names, node, room.pure); what != "" {
					report(node, what)
				}
			}
			return true
		})
	}
	return violations
}

// ambientUse names the use of a package-level function that reads the clock or a global source of randomness; in a pure
// room also one that reads or writes standard streams.
func ambientUse(names map[string]string, sel *ast.SelectorExpr, pure bool) string {
	pkg, ok := sel.X.(*ast.Ident)
	if !ok || pkg.Obj != nil { // a selector on a variable, even one that is named like a package
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
