package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Set maps tool names to the directories of built tools.
type Set map[string]string

// Binary returns the path of a tool's binary.
func (s Set) Binary(name string) string { return filepath.Join(s[name], name) }

// Files returns the sorted paths of the files of a tool, below directory.
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

// CacheDir returns the directory of built tools. It is outside the checkout, so that a fresh clone finds them.
func CacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(cache, "argocd-agent-lab", "tools"), nil
}

// Checkout returns the root of the checkout that contains the current directory.
func Checkout() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("get the current module: %w", err)
	}
	folder := filepath.Dir(strings.TrimSpace(string(out)))
	if _, err := os.Stat(filepath.Join(folder, "lab", "tools", "kubernetes", "go.mod")); err != nil {
		return "", fmt.Errorf("find lab/tools from %q: run this inside a checkout of argocd-agent: %w", folder, err)
	}
	return folder, nil
}

// find returns the tools that exist, and the names of missing ones.
func (b *Builder) find() (found Set, missing []string, err error) {
	found = Set{}
	for _, tool := range b.tools() {
		folder, _, err := tool.place(b.Checkout, b.Cache)
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
