package main

import (
	"embed"
	"errors"
	"fmt"
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
//	redundant: why no test can detect it (optional)
//
// The function is NAME or TYPE.NAME. The text before is a part of one line, and must occur exactly once in the function.
// Empty lines separate blocks. Lines that start with # are comments.
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
		return mutant{}, errors.New("the second line begins with -, the third with +, and they differ")
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
