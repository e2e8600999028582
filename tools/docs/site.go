package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// repository has the files that pages link to outside of the directory.
const repository = "https://github.com/argocd-agent/argocd-agent/blob/main/"

//go:embed page.html
var pageText string

//go:embed style.css
var style []byte

//go:embed search.js
var search []byte

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is one Markdown file.
type page struct {
	Path  string // in the site, with slashes
	Title string
	Root  string // way from the page to the start of the site
	Body  template.HTML
	Nav   []section
	Here  []heading

	source   []byte
	document ast.Node
}

type section struct {
	Title string
	Links []link
}

type link struct {
	Title, Path string
	Current     bool
}

type heading struct{ Title, ID string }

// entry is a section of a page in the search index.
type entry struct {
	Title string `json:"title"`
	Path  string `json:"path"`
	Text  string `json:"text"`
}

// build writes the site and returns the number of its pages.
func build(source, target string) (int, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	pages, err := readPages(markdown, source)
	if err != nil {
		return 0, err
	}
	index := slices.IndexFunc(pages, func(p *page) bool { return p.Path == "index.html" })
	if index < 0 {
		return 0, errors.New("there is no README.md, which has the navigation")
	}
	nav := navigation(pages[index], pages)
	for _, p := range pages {
		if p != pages[index] && !listed(nav, p.Path) {
			return 0, fmt.Errorf("README.md does not link to %s", p.Path)
		}
	}
	if err := os.RemoveAll(target); err != nil {
		return 0, err
	}
	var entries []entry
	for _, p := range pages {
		p.Nav = navFor(nav, p)
		var body bytes.Buffer
		if err := markdown.Renderer().Render(&body, p.source, p.document); err != nil {
			return 0, fmt.Errorf("render %s: %w", p.Path, err)
		}
		p.Body = template.HTML(body.String()) //nolint:gosec // from our own pages; the renderer omits raw HTML
		var out bytes.Buffer
		if err := pageTemplate.Execute(&out, p); err != nil {
			return 0, fmt.Errorf("render %s: %w", p.Path, err)
		}
		if err := write(target, p.Path, out.Bytes()); err != nil {
			return 0, err
		}
		entries = append(entries, p.entries()...)
	}
	list, err := json.Marshal(entries)
	if err != nil {
		return 0, err
	}
	// A script, because browsers do not load JSON from files.
	list = slices.Concat([]byte("window.searchIndex = "), list, []byte(";\n"))
	for name, content := range map[string][]byte{"style.css": style, "search.js": search, "search-index.js": list} {
		if err := write(target, name, content); err != nil {
			return 0, err
		}
	}
	return len(pages), copyImages(source, target)
}

// readPages parses the Markdown files of a directory and rewrites their links.
func readPages(markdown goldmark.Markdown, source string) (pages []*page, err error) {
	err = filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		p := &page{Path: siteName(name), Root: strings.Repeat("../", strings.Count(name, "/")), source: content}
		p.document = markdown.Parser().Parse(text.NewReader(content))
		p.rewriteLinks(path.Dir(name))
		p.readHeadings()
		if p.Title == "" {
			return fmt.Errorf("%s has no title", name)
		}
		pages = append(pages, p)
		return nil
	})
	return pages, err
}

// siteName returns the name of a Markdown file in the site.
func siteName(name string) string {
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// rewriteLinks makes links lead to pages of the site, or to the repository.
func (p *page) rewriteLinks(directory string) {
	p.each(func(node ast.Node) {
		if l, ok := node.(*ast.Link); ok {
			l.Destination = []byte(siteLink(directory, string(l.Destination)))
		}
	})
}

func siteLink(directory, destination string) string {
	target, anchor, hasAnchor := strings.Cut(destination, "#")
	if target == "" || strings.Contains(target, "://") {
		return destination
	}
	switch full := path.Join(directory, target); {
	case strings.HasPrefix(full, "../"):
		target = repository + strings.TrimPrefix(full, "../")
	case strings.HasSuffix(target, ".md"):
		target = siteName(target)
	}
	if hasAnchor {
		return target + "#" + anchor
	}
	return target
}

// readHeadings finds the title of the page and its sections.
func (p *page) readHeadings() {
	p.each(func(node ast.Node) {
		h, ok := node.(*ast.Heading)
		if !ok {
			return
		}
		title := plain(h, p.source)
		switch id, _ := h.AttributeString("id"); {
		case h.Level == 1 && p.Title == "":
			p.Title = title
		case h.Level == 2:
			p.Here = append(p.Here, heading{title, string(id.([]byte))})
		}
	})
}

func (p *page) each(visit func(ast.Node)) {
	_ = ast.Walk(p.document, func(node ast.Node, entering bool) (ast.WalkStatus, error) { // visit does not fail
		if entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

// plain returns the text of a node without markup.
func plain(node ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // writes to a Builder do not fail
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Value(source))
			b.WriteByte(' ')
		case *ast.FencedCodeBlock:
			b.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// entries returns the sections of a page for the search.
func (p *page) entries() (all []entry) {
	current := entry{Title: p.Title, Path: p.Path}
	var b strings.Builder
	flush := func() {
		current.Text = strings.TrimSpace(b.String())
		all = append(all, current)
		b.Reset()
	}
	for node := p.document.FirstChild(); node != nil; node = node.NextSibling() {
		if h, ok := node.(*ast.Heading); ok {
			if h.Level > 1 {
				flush()
				id, _ := h.AttributeString("id")
				current = entry{Title: p.Title + ": " + plain(h, p.source), Path: p.Path + "#" + string(id.([]byte))}
			}
			continue
		}
		b.WriteString(plain(node, p.source) + " ")
	}
	flush()
	return all
}

// navigation returns the pages in the order of the index. Each paragraph before a list is the title of its section.
func navigation(index *page, pages []*page) (nav []section) {
	titles := map[string]string{}
	for _, p := range pages {
		titles[p.Path] = p.Title
	}
	for node := index.document.FirstChild(); node != nil; node = node.NextSibling() {
		switch n := node.(type) {
		case *ast.Paragraph:
			nav = append(nav, section{Title: strings.TrimSuffix(plain(n, index.source), ":")})
		case *ast.List:
			if len(nav) == 0 {
				nav = append(nav, section{})
			}
			s := &nav[len(nav)-1]
			_ = ast.Walk(n, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
				if l, ok := node.(*ast.Link); ok && entering && titles[string(l.Destination)] != "" {
					s.Links = append(s.Links, link{Title: titles[string(l.Destination)], Path: string(l.Destination)})
				}
				return ast.WalkContinue, nil
			})
		}
	}
	return slices.DeleteFunc(nav, func(s section) bool { return len(s.Links) == 0 })
}

// navFor marks the current page.
func navFor(nav []section, p *page) []section {
	out := make([]section, len(nav))
	for i, s := range nav {
		out[i] = section{Title: s.Title, Links: slices.Clone(s.Links)}
		for j := range s.Links {
			out[i].Links[j].Current = s.Links[j].Path == p.Path
		}
	}
	return out
}

func listed(nav []section, name string) bool {
	return slices.ContainsFunc(nav, func(s section) bool {
		return slices.ContainsFunc(s.Links, func(l link) bool { return l.Path == name })
	})
}

// copyImages copies all other files of the directory.
func copyImages(source, target string) error {
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) == ".md" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		return write(target, filepath.ToSlash(name), content)
	})
}

func write(target, name string, content []byte) error {
	file := filepath.Join(target, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
