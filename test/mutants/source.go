package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A binary with all mutants is compiled once, and an environment variable selects the active mutant. Each function with
// mutants is replaced by one that selects among copies: the original, and one for each mutant.

// selector is the environment variable. It holds the name of the active mutant.
const selector = "ARGOCD_AGENT_MUTANT"

// activeFile declares the variable that the generated functions read. It is added to each package.
const activeFile = `package %s

import "os"

var mutantActive = os.Getenv(%q)
`

// overlay returns the replaced and added files by path, so that a mutant can be selected at run time.
func overlay(root string, mutants []mutant) (map[string][]byte, error) {
	files := map[string][]mutant{}
	replaced := map[string][]byte{}
	for _, m := range mutants {
		if !slices.Contains(packages, m.pkg()) {
			return nil, fmt.Errorf("mutant %s: %s is not in one of the packages %v", m.name, m.file, packages)
		}
		files[m.file] = append(files[m.file], m)
		added := filepath.Join(root, "internal", m.pkg(), "mutant_active.go")
		replaced[added] = fmt.Appendf(nil, activeFile, m.pkg(), selector)
	}
	for file, list := range files {
		name := filepath.Join(root, "internal", filepath.FromSlash(file))
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", list[0].name, err)
		}
		if replaced[name], err = withMutants(file, source, list); err != nil {
			return nil, err
		}
	}
	return replaced, nil
}

// withMutants returns a file whose functions select among the mutants of that file.
func withMutants(file string, source []byte, mutants []mutant) ([]byte, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	byFunction := map[string][]mutant{}
	for _, m := range mutants {
		byFunction[m.function] = append(byFunction[m.function], m)
	}
	var out bytes.Buffer
	end := 0
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || byFunction[functionName(f)] == nil {
			continue
		}
		list := byFunction[functionName(f)]
		delete(byFunction, functionName(f))
		fn := function{FuncDecl: f, fset: fset, source: source}
		out.Write(source[end:fn.offset(f.Pos())])
		end = fn.offset(f.End())
		if err := fn.write(&out, file, list); err != nil {
			return nil, err
		}
	}
	for name, list := range byFunction {
		return nil, fmt.Errorf("mutant %s: %s has no function %s", list[0].name, file, name)
	}
	out.Write(source[end:])
	return out.Bytes(), nil
}

// function is a function of a source file.
type function struct {
	*ast.FuncDecl
	fset   *token.FileSet
	source []byte
}

func (f function) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f function) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

// write writes the selecting function, the original and the mutants.
func (f function) write(out *bytes.Buffer, file string, mutants []mutant) error {
	if f.Type.TypeParams != nil {
		return fmt.Errorf("mutant %s: %s has type parameters, which is not supported", mutants[0].name, f.Name.Name)
	}
	receiver, call := "", ""
	if f.Recv != nil {
		receiver, call = "(receiver "+f.text(f.Recv.List[0].Type)+") ", "receiver."
	}
	parameters, arguments := f.parameters()
	result := ""
	if f.Type.Results != nil {
		result = f.text(f.Type.Results) + " "
	}
	fmt.Fprintf(out, "func %s%s(%s) %s{\n\tswitch mutantActive {\n", receiver, f.Name.Name, parameters, result)
	choose := func(condition, name string) {
		if result == "" {
			fmt.Fprintf(out, "\t%s:\n\t\t%s%s(%s)\n", condition, call, name, arguments)
		} else {
			fmt.Fprintf(out, "\t%s:\n\t\treturn %s%s(%s)\n", condition, call, name, arguments)
		}
	}
	for i, m := range mutants {
		choose(fmt.Sprintf("case %q", m.name), f.copyName(i+1))
	}
	choose("default", f.copyName(0))
	out.WriteString("\t}\n}\n\n")
	body := f.text(f.FuncDecl)
	f.writeCopy(out, file, body, 0)
	for i, m := range mutants {
		if n := strings.Count(body, m.before); n != 1 {
			return fmt.Errorf("mutant %s: %q occurs %d times in %s of %s, not once; bring the table in line with the code", m.name, m.before, n, m.function, file)
		}
		f.writeCopy(out, "mutant-"+m.name, strings.Replace(body, m.before, m.after, 1), i+1)
	}
	return nil
}

func (f function) copyName(i int) string { return fmt.Sprintf("%s__%d", f.Name.Name, i) }

// writeCopy writes a copy of the function under another name. A line directive keeps its position for the compiler and
// stack traces.
func (f function) writeCopy(out *bytes.Buffer, origin, body string, i int) {
	line := f.fset.Position(f.Pos()).Line
	body = strings.Replace(body, " "+f.Name.Name+"(", " "+f.copyName(i)+"(", 1)
	fmt.Fprintf(out, "//line %s:%d\n%s\n\n", origin, line, body)
}

// parameters returns the parameters with generated names, and the arguments that pass them.
func (f function) parameters() (parameters, arguments string) {
	var declared, passed []string
	for _, field := range f.Type.Params.List {
		for range max(1, len(field.Names)) {
			name := fmt.Sprintf("p%d", len(declared))
			declared = append(declared, name+" "+f.text(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			passed = append(passed, name)
		}
	}
	return strings.Join(declared, ", "), strings.Join(passed, ", ")
}

// functionName returns NAME or, of a method, TYPE.NAME.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
