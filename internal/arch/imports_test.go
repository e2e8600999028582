package arch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestEveryImportFollowsTheArrow(t *testing.T) {
	sources, module := loadThisModule(t)
	for _, violation := range checkImports(packageRules, module, sources) {
		t.Error(violation)
	}
}

func TestModuleFileStaysFreeOfWhatTheLabBuilds(t *testing.T) {
	fsys, _ := thisModule(t)
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, banned := range forbiddenModules {
		if strings.Contains(string(text), banned) {
			t.Errorf("go.mod names %s: it belongs into a nested module below lab/tools", banned)
		}
	}
}

// checkImports returns one line for each import that the house does not allow.
func checkImports(house []packageRule, module string, sources []source) []string {
	var violations []string
	for _, file := range sources {
		from, known := roomOf(house, file.dir)
		if !known {
			violations = append(violations, fmt.Sprintf("%s is in no room: add its folder to the table in internal/arch", file.name))
			continue
		}
		for _, imp := range file.imports() {
			if reason := refuse(house, module, from, file, imp); reason != "" {
				violations = append(violations, fmt.Sprintf("%s: %s", file.at(imp.pos), reason))
			}
		}
	}
	return violations
}

// refuse says why a file of a room may not import something; nothing means that it may.
func refuse(house []packageRule, module string, from packageRule, file source, imp imported) string {
	for _, banned := range forbiddenModules {
		if within(imp.path, banned) {
			return fmt.Sprintf("%s is imported nowhere in this module", imp.path)
		}
	}
	if dir, inside := strings.CutPrefix(imp.path, module+"/"); inside {
		return refuseInner(house, from, file, dir)
	}
	if standard(imp.path) {
		if from.pure && !file.test && !slices.Contains(pureStandard, imp.path) {
			return fmt.Sprintf("%s is pure and may not import %q: a caller passes in what it needs", from.path, imp.path)
		}
		return ""
	}
	if !file.test && !slices.ContainsFunc(from.outer, func(prefix string) bool { return strings.HasPrefix(imp.path, prefix) }) {
		return fmt.Sprintf("%s may not import %s", from.path, imp.path)
	}
	return ""
}

func refuseInner(house []packageRule, from packageRule, file source, dir string) string {
	to, known := roomOf(house, dir)
	switch {
	case !known:
		return fmt.Sprintf("%s is in no room", dir)
	case to.path == from.path, slices.Contains(from.inner, to.path):
		return ""
	case file.test && slices.Contains(from.tests, to.path):
		return ""
	default:
		return fmt.Sprintf("%s may not import %s", from.path, to.path)
	}
}

// standard reports whether a path is of the standard library: the first segment of any other has a dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
