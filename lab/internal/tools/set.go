package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Set says where each built tool lives: tool name to folder.
type Set map[string]string

// Program is the path of a tool's executable.
func (s Set) Program(name string) string { return filepath.Join(s[name], name) }

// Files are the paths of the files that travelled with a tool, below folder, in order.
func (s Set) Files(name, folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s[name], folder, "*.yaml"))
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "kustomization.yaml" })
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("none there: remove %s and build again", s[name])
	}
	if err != nil {
		return nil, fmt.Errorf("find the files of %s in %s: %w", name, folder, err)
	}
	return files, nil
}

// CacheFolder is where built tools are kept: outside the checkout, so that a fresh clone finds them.
func CacheFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(cache, "argocd-agent-lab", "tools"), nil
}

// Checkout finds the project's checkout around the current folder; the pins live there.
func Checkout() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for the current module: %w", err)
	}
	folder := filepath.Dir(strings.TrimSpace(string(out)))
	if _, err := os.Stat(filepath.Join(folder, "lab", "tools", "kubernetes", "go.mod")); err != nil {
		return "", fmt.Errorf("find lab/tools from %q: run this inside a checkout of argocd-agent: %w", folder, err)
	}
	return folder, nil
}

// Find returns the tools that are built, and the names of those that are not.
func Find(checkout, cache string) (found Set, missing []string, err error) {
	found = Set{}
	for _, tool := range All() {
		folder, _, err := tool.place(checkout, cache)
		if err != nil {
			return nil, nil, err
		}
		if _, err := os.Stat(filepath.Join(folder, tool.Name)); err != nil {
			missing = append(missing, tool.Name)
			continue
		}
		found[tool.Name] = folder
	}
	return found, missing, nil
}
