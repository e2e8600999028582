package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// commands are the lines that a page tells people to type: in blocks marked sh, and behind a dollar sign in those marked
// console.
func commands(text string) (lines []string) {
	for _, block := range regexp.MustCompile("(?s)\n *```(sh|console)\n(.*?)\n *```").FindAllStringSubmatch(text, -1) {
		content := strings.ReplaceAll(block[2], "\\\n", " ")
		for line := range strings.Lines(content) {
			line = strings.TrimSpace(line)
			if block[1] == "console" {
				typed, found := strings.CutPrefix(line, "$ ")
				if !found {
					continue
				}
				line = typed
			}
			if line, _, _ = strings.Cut(line, " # "); line != "" {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// What people are told to type is understood: charts are rendered, and our own commands know every word and flag of it.
// What they then do is tried elsewhere, in clusters.
func TestPages_CommandsAreValid(t *testing.T) {
	helm := lab.Tool(t, "helm")
	ctl := filepath.Join(t.TempDir(), "argocd-agentctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", ctl, "./cmd/argocd-agentctl")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tried := map[string]int{}
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "docs/reference/") {
			continue
		}
		for _, line := range commands(text) {
			words := split(line)
			tried[words[0]]++
			switch words[0] {
			case "helm":
				rendered(t, page, text, helm, words)
			case "argocd-agentctl":
				understood(t, page, ctl, words)
			case "kubectl":
				for i, word := range words {
					if word == "-k" {
						if _, err := os.Stat(filepath.Join(root, words[i+1], "kustomization.yaml")); err != nil {
							t.Errorf("%s: %s: %v", page, line, err)
						}
					}
				}
			case "go":
				if _, err := os.Stat(filepath.Join(root, words[2])); err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
				}
			case "make":
				if !strings.Contains(read(t, root+"/Makefile"), "\n"+words[1]+": ##") {
					t.Errorf("%s: there is no target %s", page, words[1])
				}
			case "argocd", "docker":
			default:
				t.Errorf("%s tells people to run %s, which is not known here", page, words[0])
			}
		}
	}
	for _, program := range []string{"helm", "argocd-agentctl", "kubectl"} {
		if tried[program] == 0 {
			t.Errorf("no page has a command of %s: is this test looking where it should?", program)
		}
	}
}

// rendered tries helm install by rendering. Where the page shows an error, it has to be that one.
func rendered(t *testing.T, page, text, helm string, words []string) {
	t.Helper()
	args := append([]string{"template"}, words[2:]...)
	command := exec.CommandContext(t.Context(), helm, append(args, "--kube-version", "1.35.0")...)
	command.Dir = root
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := command.CombinedOutput()
	if err == nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		if reason, found := strings.CutPrefix(line, "Error: "); found && strings.Contains(text, "Error: "+strings.TrimSpace(reason)) {
			return
		}
	}
	t.Errorf("%s: %q: %v: %s", page, words, err, out)
}

// understood asks a command for help with everything that the page gives it: flags are read before that is answered.
func understood(t *testing.T, page, ctl string, words []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), ctl, append(words[1:], "--help")...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %q: %v: %s", page, words, err, out)
		return
	}
	_, usage, _ := strings.Cut(string(out), "\nUsage:\n  ")
	line, _, _ := strings.Cut(usage, "\n")
	for i, word := range strings.Fields(line) {
		if word == "COMMAND" && i < len(words) && !strings.HasPrefix(words[i], "-") && !strings.Contains(line, "[AGENT…]") {
			t.Errorf("%s: %q: there is no command %s", page, words, words[i])
		}
	}
}

// split splits a line as a shell does, as far as pages need it.
func split(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}
