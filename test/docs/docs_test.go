// Package docs checks the documentation: links, references, names and commands.
package docs

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "make the references again")

const root = "../.."

// pages returns all documents by their path in the repository.
func pages(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages at %s: %v", pattern, err)
		}
		for _, file := range files {
			path, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = read(t, file)
		}
	}
	return all
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matches compares a reference with its generated content. With -update, it writes the reference.
func matches(t *testing.T, file, want string) {
	t.Helper()
	file = filepath.Join(root, "docs", "reference", file)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is out of date; run: go test ./test/docs -update", file)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestPages_LinksExist(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, section, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, found[1])
			}
			if section != "" && !hasSection(all[path], section) {
				t.Errorf("%s: there is no section %s in %s", page, section, path)
			}
		}
	}
}

func hasSection(text, anchor string) bool {
	for line := range strings.Lines(text) {
		if title, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && strings.HasPrefix(line, "#") &&
			strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// docs/README.md must link to every page.
func TestPages_AreListed(t *testing.T) {
	index := read(t, filepath.Join(root, "docs", "README.md"))
	for page := range pages(t) {
		if rest, inDocs := strings.CutPrefix(page, "docs/"); inDocs && rest != "README.md" && !strings.Contains(index, "]("+rest+")") {
			t.Errorf("docs/README.md does not list %s", rest)
		}
	}
}

// Files, flags and metrics in pages must exist.
func TestPages_NamesExist(t *testing.T) {
	flags := read(t, root+"/docs/reference/principal.md") + read(t, root+"/docs/reference/agent.md") + read(t, root+"/docs/reference/argocd-agentctl.md")
	metrics := read(t, root+"/docs/reference/metrics.md")
	path := regexp.MustCompile("`((?:install|docs|lab|cmd)/[-a-z0-9_/.]+)`")
	flagName := regexp.MustCompile("`--([a-z][-a-z0-9]+)[^`]*`")
	metric := regexp.MustCompile("`(argocd_agent_[a-z_]+)")
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "docs/reference/") {
			continue
		}
		for _, found := range path.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, found[1])); err != nil {
				t.Errorf("%s names %s, which is not there", page, found[1])
			}
		}
		for _, found := range flagName.FindAllStringSubmatch(text, -1) {
			if name := found[1]; !strings.Contains(flags, "--"+name) && !othersFlags[name] {
				t.Errorf("%s names --%s, which no program has", page, name)
			}
		}
		for _, found := range metric.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(metrics, "`"+found[1]+"`") {
				t.Errorf("%s names the metric %s, which does not exist", page, found[1])
			}
		}
	}
}

// othersFlags lists flags of Argo CD.
var othersFlags = map[string]bool{"application-namespaces": true, "preserved-annotations": true, "redis": true}

func TestPages_CitedTestsExist(t *testing.T) {
	var names []string
	for _, found := range regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]+)`").FindAllStringSubmatch(read(t, root+"/docs/security.md"), -1) {
		names = append(names, found[1])
	}
	if len(names) < 10 {
		t.Fatalf("docs/security.md cites only %d tests", len(names))
	}
	declared := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
			declared[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !declared[name] {
			t.Errorf("docs/security.md cites %s, which does not exist", name)
		}
	}
}

// The README says what the project is and how to start. Everything else belongs to docs/.
func TestReadme_IsShort(t *testing.T) {
	if lines := strings.Count(read(t, root+"/README.md"), "\n"); lines > 100 {
		t.Errorf("the README has %d lines, more than 100", lines)
	}
}
