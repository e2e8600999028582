package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// argocd-agentctl runs on machines of users. Its packages are type-checked for their systems, which takes seconds.
// `make release` compiles them.
func TestCLI_CompilesForWindowsAndMacOS(t *testing.T) {
	if testing.Short() {
		t.Skip("checking all imported packages takes ten seconds, which -short leaves out")
	}
	for _, target := range []struct{ system, arch string }{{"windows", "amd64"}, {"darwin", "arm64"}} {
		t.Run(target.system, func(t *testing.T) {
			c := &checker{sizes: types.SizesFor("gc", target.arch), files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
			own := 0
			for _, p := range dependencies(t, target.system, target.arch, "./cmd/argocd-agentctl") {
				if p.ImportPath == "unsafe" {
					continue
				}
				if err := c.check(p); err != nil {
					t.Errorf("%s: %v", p.ImportPath, err)
				}
				if p.own() {
					own++
				}
			}
			if own < 10 {
				t.Errorf("only %d packages of this module", own)
			}
		})
	}
}

// goPackage is an entry of `go list -deps -json`.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
}

func (p *goPackage) own() bool {
	return strings.HasPrefix(p.ImportPath, "github.com/argocd-agent/argocd-agent/")
}

// dependencies lists a package and what it imports, imported packages first.
func dependencies(t *testing.T, system, arch, path string) (all []*goPackage) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap", path)
	command.Dir = "../.."
	command.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &goPackage{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// checker type-checks packages for one system. Function bodies count only in packages of this module.
type checker struct {
	sizes   types.Sizes
	files   *token.FileSet
	done    map[string]*types.Package
	current *goPackage
}

func (c *checker) check(p *goPackage) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	c.current = p
	config := types.Config{Importer: c, Sizes: c.sizes, IgnoreFuncBodies: !p.own()}
	checked, err := config.Check(p.ImportPath, c.files, files, nil)
	c.done[p.ImportPath] = checked
	return err
}

// Import returns a package that was checked before.
func (c *checker) Import(path string) (*types.Package, error) {
	if mapped := c.current.ImportMap[path]; mapped != "" {
		path = mapped
	}
	if p := c.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not checked yet", path)
}
