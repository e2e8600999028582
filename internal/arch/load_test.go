package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
)

// A source is one parsed Go file. Build tags are ignored: a rule applies on every platform.
type source struct {
	name string // path relative to the module root
	dir  string // directory of name
	test bool   // a _test.go file
	ast  *ast.File
	fset *token.FileSet
}

// An imported is one import of a file: the import path and its local name.
type imported struct {
	path string
	name string
	pos  token.Pos
}

func (s source) imports() []imported {
	var list []imported
	for _, spec := range s.ast.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so this cannot happen
		}
		name := defaultName(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		list = append(list, imported{path: importPath, name: name, pos: spec.Pos()})
	}
	return list
}

// defaultName guesses a package name from its path. It is exact for the standard library: math/rand/v2 is rand.
func defaultName(importPath string) string {
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

func (s source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(pos).Line)
}

// load parses every Go file of the module at the root of fsys, except nested modules, testdata and hidden directories.
func load(fsys fs.FS) ([]source, error) {
	var sources []source
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && skipped(fsys, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		sources = append(sources, source{
			name: name,
			dir:  path.Dir(name),
			test: strings.HasSuffix(name, "_test.go"),
			ast:  file,
			fset: fset,
		})
		return nil
	})
	return sources, err
}

func skipped(fsys fs.FS, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

// thisModule returns this repository and its module path.
func thisModule(t *testing.T) (fs.FS, string) {
	t.Helper()
	fsys := os.DirFS("../..")
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	return fsys, strings.TrimPrefix(first, "module ")
}

func loadThisModule(t *testing.T) ([]source, string) {
	t.Helper()
	fsys, module := thisModule(t)
	sources, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return sources, module
}
