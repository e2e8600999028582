package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

const (
	// ArgoCDDirVariable is the environment variable with the directory of an Argo CD to use instead of the pinned one:
	// the binary argocd, manifests/ and hack/, as in a checkout of Argo CD.
	ArgoCDDirVariable = "ARGOCD_AGENT_LAB_ARGOCD"

	// DirVariable is the environment variable with a directory of prebuilt tools. Each tool is a file with its name or,
	// with the other files that it needs, a directory with its name. A tool that is not there is built.
	DirVariable = "ARGOCD_AGENT_LAB_TOOLS"
)

// ExtendPath puts the directory of prebuilt tools in front of PATH: redis-server, git and gpg can be there, too.
func ExtendPath() error {
	folder := os.Getenv(DirVariable)
	if folder == "" {
		return nil
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	return os.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// given returns the directory of a tool that is not built, or "".
func (t Tool) given() (string, error) {
	if folder := os.Getenv(ArgoCDDirVariable); t.Name == "argocd" && folder != "" {
		return t.complete(folder, "ARGOCD")
	}
	all := os.Getenv(DirVariable)
	if all == "" {
		return "", nil
	}
	if _, err := os.ReadDir(all); err != nil {
		return "", fmt.Errorf("use the tools in LAB_TOOLS: %w", err)
	}
	own := filepath.Join(all, t.Name)
	found, err := os.Stat(own)
	switch {
	case os.IsNotExist(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("use the %s in LAB_TOOLS: %w", t.Name, err)
	case found.IsDir():
		return t.complete(own, "LAB_TOOLS")
	case len(t.Files) > 0:
		return "", fmt.Errorf("use the %s in LAB_TOOLS: %s is a file, but the lab needs other files of %s, too: "+
			"make it a directory with %s and %s", t.Name, own, t.Name, t.Name, t.Files)
	}
	return t.complete(all, "LAB_TOOLS")
}

// complete returns the absolute path of a directory that has the binary and all files of the tool.
func (t Tool) complete(folder, setting string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	for _, glob := range append([]string{t.Name}, t.Files...) {
		if files, err := filepath.Glob(filepath.Join(folder, glob)); err != nil || len(files) == 0 {
			return "", fmt.Errorf("use the %s in %s (%s): it has no %s", t.Name, folder, setting, glob)
		}
	}
	return folder, nil
}

// checked has the paths of DirVariable that this process has checked.
var checked sync.Map

// checkGiven runs each tool of DirVariable once and prints its version. A tool that does not run or has no version is an
// error. Another version than the pinned one is permitted.
func (b *Builder) checkGiven(ctx context.Context) error {
	if os.Getenv(DirVariable) == "" {
		return nil
	}
	for _, tool := range b.tools() {
		folder, err := tool.given()
		if err != nil {
			return err
		}
		path := filepath.Join(os.Getenv(DirVariable), tool.Name)
		if _, done := checked.Load(path); done {
			continue
		}
		pinned, err := tool.version(b.Checkout)
		if err != nil {
			return err
		}
		if folder == "" {
			fmt.Fprintf(b.Progress, "%s: not in LAB_TOOLS, the lab builds %s\n", tool.Name, pinned)
			checked.Store(path, true)
			continue
		}
		version, err := runVersion(ctx, filepath.Join(folder, tool.Name))
		if err != nil {
			return fmt.Errorf("use the %s in %s: %w: replace or remove it", tool.Name, folder, err)
		}
		fmt.Fprintf(b.Progress, "%s: %s from %s (the lab builds %s)\n", tool.Name, version, folder, pinned)
		checked.Store(path, true)
	}
	return nil
}

var versionNumber = regexp.MustCompile(`v?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9a-z]*`)

// runVersion returns the version that a binary prints. The tools print it with different arguments.
func runVersion(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	for _, args := range [][]string{{"--version"}, {"version", "--client"}, {"version"}} {
		out, err := exec.CommandContext(ctx, program, args...).Output()
		if version := versionNumber.Find(out); err == nil && version != nil {
			return string(version), nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("it prints no version")
		}
	}
	return "", last
}
