package main

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

//go:embed table/*.txt
var tables embed.FS

// mutant is one change of one line. In the table it is a block of lines:
//
//	name  package/file.go  function
//	- text before
//	+ text after
//	what it breaks
//	redundant: why no test can notice it (optional)
//
// The function is NAME or TYPE.NAME; "-" stands for the whole file. The text before is a part of one line, and must occur
// exactly once in the function. Empty lines separate blocks. Lines that start with # are comments.
type mutant struct {
	name      string
	file      string // relative to internal/
	function  string
	before    string
	after     string
	breaks    string
	redundant string
}

func (m mutant) pkg() string { return path.Dir(m.file) }

// readTable returns all mutants.
func readTable() ([]mutant, error) {
	files, err := tables.ReadDir("table")
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	var all []mutant
	names := map[string]bool{}
	for _, f := range files {
		text, err := tables.ReadFile("table/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("read a table: %w", err)
		}
		mutants, err := parseTable(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		for _, m := range mutants {
			if names[m.name] {
				return nil, fmt.Errorf("%s: two mutants are called %s", f.Name(), m.name)
			}
			names[m.name] = true
		}
		all = append(all, mutants...)
	}
	return all, nil
}

func parseTable(text string) ([]mutant, error) {
	var all []mutant
	for block := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(block, "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			continue
		}
		m, err := parseMutant(lines)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", lines[0], err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseMutant(lines []string) (mutant, error) {
	head := strings.Fields(lines[0])
	if len(head) != 3 || len(lines) < 4 || len(lines) > 5 {
		return mutant{}, fmt.Errorf("a mutant has a name, a file and a function, and then three or four lines, not %d", len(lines)-1)
	}
	m := mutant{name: head[0], file: head[1], function: head[2], breaks: lines[3]}
	before, ok1 := strings.CutPrefix(lines[1], "- ")
	after, ok2 := strings.CutPrefix(lines[2], "+")
	m.before, m.after = before, strings.TrimSpace(after)
	if !ok1 || !ok2 || m.before == m.after {
		return mutant{}, fmt.Errorf("the second line begins with -, the third with +, and they differ")
	}
	if len(lines) == 5 {
		reason, ok := strings.CutPrefix(lines[4], "redundant: ")
		if !ok {
			return mutant{}, fmt.Errorf("the fifth line begins with %q", "redundant: ")
		}
		m.redundant = reason
	}
	return m, nil
}

// apply returns the file with the change.
func (m mutant) apply(source []byte) ([]byte, error) {
	start, end := 0, len(source)
	if m.function != "-" {
		var err error
		if start, end, err = findFunction(source, m.function); err != nil {
			return nil, fmt.Errorf("mutant %s: %s: %w", m.name, m.file, err)
		}
	}
	body := string(source[start:end])
	if n := strings.Count(body, m.before); n != 1 {
		return nil, fmt.Errorf("mutant %s: %s: %q occurs %d times in %s, not once; bring the table in line with the code", m.name, m.file, m.before, n, m.function)
	}
	return []byte(string(source[:start]) + strings.Replace(body, m.before, m.after, 1) + string(source[end:])), nil
}

// findFunction returns where a function starts and ends.
func findFunction(source []byte, name string) (start, end int, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, fmt.Errorf("parse: %w", err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && functionName(f) == name {
			return fset.Position(f.Pos()).Offset, fset.Position(f.End()).Offset, nil
		}
	}
	return 0, 0, fmt.Errorf("there is no function %s", name)
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
