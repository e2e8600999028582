package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// document is what a test needs of an HTML page.
type document struct {
	ids   map[string]bool
	links []string // href and src
}

// site builds the documentation of this repository and returns its HTML pages, and all its files.
func site(t *testing.T) (pages map[string]document, files map[string]string) {
	t.Helper()
	target := t.TempDir()
	count, err := build("../../docs", target)
	if err != nil {
		t.Fatal(err)
	}
	pages, files = map[string]document{}, map[string]string{}
	err = filepath.WalkDir(target, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(target, file)
		if err != nil {
			return err
		}
		files[name] = string(content)
		if filepath.Ext(file) == ".html" {
			pages[name] = parse(t, string(content))
		}
		return nil
	})
	if err != nil || len(pages) != count || count < 20 {
		t.Fatalf("%d pages, %d files: %v", count, len(pages), err)
	}
	return pages, files
}

func parse(t *testing.T, content string) document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	d := document{ids: map[string]bool{}}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				d.ids[attribute.Val] = true
			case "href", "src":
				d.links = append(d.links, attribute.Val)
			}
		}
	}
	return d
}

func TestSite_LinksLeadSomewhere(t *testing.T) {
	pages, files := site(t)
	checked := 0
	for name, page := range pages {
		for _, link := range page.links {
			target, anchor, hasAnchor := strings.Cut(link, "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			full := name
			if target != "" {
				full = path.Join(path.Dir(name), target)
			}
			if _, there := files[full]; !there {
				t.Errorf("%s: %s leads nowhere", name, link)
			} else if hasAnchor && !pages[full].ids[anchor] {
				t.Errorf("%s: %s has no section %s", name, full, anchor)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d links: check this test", checked)
	}
}

// The site works without other hosts.
func TestSite_LoadsNothingFromElsewhere(t *testing.T) {
	_, files := site(t)
	for name, content := range files {
		if filepath.Ext(name) == ".html" && (strings.Contains(content, `src="http`) || strings.Contains(content, `rel="stylesheet" href="http`)) || strings.Contains(content, "@import") {
			t.Errorf("%s loads from another host", name)
		}
	}
}

func TestSite_SearchFindsSections(t *testing.T) {
	pages, files := site(t)
	text, found := strings.CutPrefix(strings.TrimSuffix(files["search-index.js"], ";\n"), "window.searchIndex = ")
	var entries []entry
	if err := json.Unmarshal([]byte(text), &entries); err != nil || !found {
		t.Fatal(err)
	}
	byPath := map[string]entry{}
	for _, e := range entries {
		byPath[e.Path] = e
		name, anchor, hasAnchor := strings.Cut(e.Path, "#")
		if page, there := pages[name]; !there || hasAnchor && !page.ids[anchor] {
			t.Errorf("%s is in the index and not in the site", e.Path)
		}
	}
	if e := byPath["operations.html#rotate-the-ca"]; e.Title != "Operations: Rotate the CA" || !strings.Contains(e.Text, "argocd-agentctl pki rotate --finish") {
		t.Errorf("the section about the CA is %+v", e)
	}
}

func TestBuild_RefusesPagesWithoutTitleOrNavigation(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no index":     {map[string]string{"a.md": "# A\n"}, "no README.md"},
		"no title":     {map[string]string{"README.md": "# Start\n\n- [A](a.md)\n", "a.md": "text\n"}, "a.md has no title"},
		"not reached":  {map[string]string{"README.md": "# Start\n\n- [A](a.md)\n", "a.md": "# A\n", "b.md": "# B\n"}, "does not link to b.html"},
		"all is there": {map[string]string{"README.md": "# Start\n\nRead:\n\n- [A](a.md)\n", "a.md": "# A\n"}, ""},
	} {
		source := t.TempDir()
		for file, content := range c.files {
			if err := os.WriteFile(filepath.Join(source, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := build(source, t.TempDir())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSiteLink(t *testing.T) {
	for _, c := range []struct{ directory, link, want string }{
		{".", "install.md", "install.html"},
		{".", "install.md#rbac", "install.html#rbac"},
		{".", "#here", "#here"},
		{".", "README.md", "index.html"},
		{".", "reference/agent.md#x", "reference/agent.html#x"},
		{"reference", "../operations.md", "../operations.html"},
		{"reference", "../../BENCHMARKS.md", repository + "BENCHMARKS.md"},
		{".", "../BENCHMARKS.md#fleet", repository + "BENCHMARKS.md#fleet"},
		{".", "https://example.com/a.md", "https://example.com/a.md"},
		{".", "images/a.svg", "images/a.svg"},
	} {
		if got := siteLink(c.directory, c.link); got != c.want {
			t.Errorf("%s in %s: %s, want %s", c.link, c.directory, got, c.want)
		}
	}
}
