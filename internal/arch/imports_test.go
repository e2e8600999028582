package arch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestImports_FollowDependencyOrder(t *testing.T) {
	sources, module := loadThisModule(t)
	for _, violation := range checkImports(packageRules, module, sources) {
		t.Error(violation)
	}
}

func TestModuleFile_HasNoForbiddenModule(t *testing.T) {
	fsys, _ := thisModule(t)
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, banned := range forbiddenModules {
		if strings.Contains(string(text), banned) {
			t.Errorf("go.mod requires %s: move it to a nested module below lab/tools", banned)
		}
	}
}

// checkImports returns one line for each import that no rule allows.
func checkImports(rules []packageRule, module string, sources []source) []string {
	var violations []string
	for _, file := range sources {
		from, known := ruleFor(rules, file.dir)
		if !known {
			violations = append(violations, fmt.Sprintf("%s has no rule: add its directory to the table in internal/arch", file.name))
			continue
		}
		for _, imp := range file.imports() {
			if reason := forbidden(rules, module, from, file, imp); reason != "" {
				violations = append(violations, fmt.Sprintf("%s: %s", file.at(imp.pos), reason))
			}
		}
	}
	return violations
}

// forbidden returns the reason why file must not import imp, or "" if the import is allowed.
func forbidden(rules []packageRule, module string, from packageRule, file source, imp imported) string {
	for _, banned := range forbiddenModules {
		if within(imp.path, banned) {
			return fmt.Sprintf("%s must not be imported in this module", imp.path)
		}
	}
	for restricted, dirs := range restrictedModules {
		allowed := func(dir string) bool { return within(file.dir, dir) }
		if !file.test && within(imp.path, restricted) && !slices.ContainsFunc(dirs, allowed) {
			return fmt.Sprintf("%s may not import %s: only %s may", file.dir, imp.path, strings.Join(dirs, ", "))
		}
	}
	if dir, inside := strings.CutPrefix(imp.path, module+"/"); inside {
		return forbiddenInner(rules, from, file, dir)
	}
	if standard(imp.path) {
		if from.pure && !file.test && !slices.Contains(pureStandard, imp.path) {
			return fmt.Sprintf("%s is pure and must not import %q: pass the value in", from.path, imp.path)
		}
		return ""
	}
	if !file.test && !slices.ContainsFunc(from.outer, func(prefix string) bool { return strings.HasPrefix(imp.path, prefix) }) {
		return fmt.Sprintf("%s must not import %s", from.path, imp.path)
	}
	return ""
}

func forbiddenInner(rules []packageRule, from packageRule, file source, dir string) string {
	to, known := ruleFor(rules, dir)
	switch {
	case !known:
		return fmt.Sprintf("%s has no rule", dir)
	case to.path == from.path, slices.Contains(from.inner, to.path):
		return ""
	case file.test && slices.Contains(from.tests, to.path):
		return ""
	default:
		return fmt.Sprintf("%s must not import %s", from.path, to.path)
	}
}

// standard reports whether a path belongs to the standard library: its first segment has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
