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

// commands returns the command lines of a page: the lines of sh blocks, and those after a dollar sign in console
// blocks.
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

// Charts are rendered, and argocd-agentctl must accept every word and flag. The effect of the commands is tested in
// clusters.
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
		if page != "README.md" && !strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "docs/reference/") {
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
			case "argocd", "cp", "docker", "git", "kind":
			default:
				t.Errorf("%s has a command of %s, which this test does not know", page, words[0])
			}
		}
	}
	for _, program := range []string{"helm", "argocd-agentctl", "kubectl"} {
		if tried[program] == 0 {
			t.Errorf("no page has a command of %s: check this test", program)
		}
	}
}

// rendered renders a helm command. An install must name an image, because none is published. If the page shows an error,
// helm must fail with it.
func rendered(t *testing.T, page, text, helm string, words []string) {
	t.Helper()
	if words[1] != "template" && !strings.Contains(strings.Join(words, " "), "image.repository=") {
		t.Errorf("%s: %q names no image", page, words)
	}
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

// understood requests the help of a command with all arguments of the page. Flags are parsed before the help is
// printed.
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

// split splits a line as a shell does, for the syntax that pages use.
func split(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}
