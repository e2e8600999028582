package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLogLevels_Parse(t *testing.T) {
	for _, c := range []struct {
		text    string
		all     slog.Level
		kube    slog.Level
		lowest  slog.Level
		unknown string
		invalid bool
	}{
		{text: "warn", all: slog.LevelWarn, kube: slog.LevelWarn, lowest: slog.LevelWarn},
		{text: "kube=debug", all: slog.LevelInfo, kube: slog.LevelDebug, lowest: slog.LevelDebug},
		{text: "error, kube=warn,resource-proxy=info", all: slog.LevelError, kube: slog.LevelWarn, lowest: slog.LevelInfo, unknown: "resource-proxy"},
		{text: "debug,kube=error", all: slog.LevelDebug, kube: slog.LevelError, lowest: slog.LevelDebug},
		{text: "loud", invalid: true},
		{text: "kube=loud", invalid: true},
		{text: "=debug", invalid: true},
		{text: "", invalid: true},
	} {
		l, err := parseLogLevels(c.text)
		if (err != nil) != c.invalid {
			t.Errorf("%q: %v", c.text, err)
		}
		if err != nil {
			continue
		}
		kube, ok := l.components["kube"]
		if !ok {
			kube = l.all
		}
		if l.all != c.all || kube != c.kube || l.lowest() != c.lowest || strings.Join(l.unknown(), ",") != c.unknown {
			t.Errorf("%q: %+v, lowest %v, unknown %v", c.text, l, l.lowest(), l.unknown())
		}
	}
}

// A record has the address of its log statement, which decides its component.
func TestLogLevels_FilterByComponent(t *testing.T) {
	for _, c := range []struct {
		text, lines string
	}{
		{"info", "w"},
		{"info,library=debug", "dw"},
		{"info,library=error", ""},
		{"debug,kube=error", "dw"},
		{"error,kube=debug", ""},
	} {
		s := &observeSettings{format: formatText}
		if err := s.level.value().Set(c.text); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := s.logger(&out).With("x", 1).WithGroup("g")
		log.Debug("d") // this package is not below internal/
		log.Warn("w")
		var lines string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, "msg=")
			lines += rest[:1]
		}
		if lines != c.lines {
			t.Errorf("%s: %s", c.text, out.String())
		}
	}
}

func TestComponentOf(t *testing.T) {
	const module = "github.com/argocd-agent/argocd-agent/internal/"
	for function, want := range map[string]string{
		module + "transport/grpc.(*Server).serve": "transport",
		module + "kube.NewWriter.func1":           "kube",
		"k8s.io/client-go/rest.Do":                library,
		"":                                        library,
	} {
		if got := componentOf(function); got != want {
			t.Errorf("%s is of %s", function, got)
		}
	}
}

// The help lists the packages that log, and no others.
func TestLogComponents_AreThePackagesThatLog(t *testing.T) {
	var found []string
	root := filepath.Join("..", "..", "internal")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, path)
		component, _, _ := strings.Cut(filepath.ToSlash(relative), "/")
		for _, i := range file.Imports {
			if i.Path.Value == `"log/slog"` && !slices.Contains(found, component) && component != "cli" && component != "sim" {
				found = append(found, component)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, library)
	slices.Sort(found)
	if !slices.Equal(found, logComponents) {
		t.Errorf("packages that log: %v", found)
	}
}
