package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestPackages_HaveComments(t *testing.T) {
	sources, _ := loadThisModule(t)
	for _, violation := range checkComments(sources) {
		t.Error(violation)
	}
}

func TestArchitectureDocument_ListsEveryPackage(t *testing.T) {
	fsys, _ := thisModule(t)
	text, err := fs.ReadFile(fsys, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range checkPackageTable(packageRules, string(text)) {
		t.Error(violation)
	}
}

// checkComments returns one line for each package without a package comment. The comment may be in a test file only if
// the package has nothing but tests.
func checkComments(sources []source) []string {
	type pkg struct{ commented, commentedByTest, hasCode bool }
	packages := map[string]*pkg{}
	for _, file := range sources {
		p := packages[file.dir]
		if p == nil {
			p = &pkg{}
			packages[file.dir] = p
		}
		commented := strings.TrimSpace(file.ast.Doc.Text()) != ""
		p.hasCode = p.hasCode || !file.test
		p.commented = p.commented || commented && !file.test
		p.commentedByTest = p.commentedByTest || commented && file.test
	}
	var violations []string
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if p := packages[dir]; !p.commented && (p.hasCode || !p.commentedByTest) {
			violations = append(violations, fmt.Sprintf("%s: no package comment: state the job of the package", dir))
		}
	}
	return violations
}

// checkPackageTable returns one line for each rule whose path is missing in the package table of ARCHITECTURE.md.
func checkPackageTable(rules []packageRule, document string) []string {
	var violations []string
	for _, rule := range rules {
		if !strings.Contains(document, "| `"+rule.path+"` |") {
			violations = append(violations, fmt.Sprintf("ARCHITECTURE.md: the package table lacks `%s`", rule.path))
		}
	}
	return violations
}
