package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	sources, _ := loadThisModule(t)
	for _, violation := range checkComments(sources) {
		t.Error(violation)
	}
}

func TestArchitectureDocumentNamesEveryRoom(t *testing.T) {
	fsys, _ := thisModule(t)
	text, err := fs.ReadFile(fsys, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range checkRoomTable(packageRules, string(text)) {
		t.Error(violation)
	}
}

// checkComments returns one line for each package without a package comment. A test file may carry it only where a
// package has nothing but tests.
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
			violations = append(violations, fmt.Sprintf("%s: no package comment; tell a newcomer what the room is for", dir))
		}
	}
	return violations
}

// checkRoomTable returns one line for each room that the rooms table of ARCHITECTURE.md leaves out.
func checkRoomTable(house []packageRule, document string) []string {
	var violations []string
	for _, room := range house {
		if !strings.Contains(document, "| `"+room.path+"` |") {
			violations = append(violations, fmt.Sprintf("ARCHITECTURE.md: the rooms table lacks `%s`", room.path))
		}
	}
	return violations
}
