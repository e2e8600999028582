package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// spaceToBuild is the maximum disk space of one build: modules, compiler cache and the binary.
const spaceToBuild = 3 << 30

// Builder builds missing tools.
type Builder struct {
	Checkout string    // checkout with lab/tools, which pins the versions
	Cache    string    // directory of built tools
	Progress io.Writer // one line per tool
	Only     []string  // names of tools. If empty, all

	// Access to the machine, replaced in tests.
	compile   func(ctx context.Context, tool Tool, checkout, version, program string) error
	freeSpace func(folder string) (uint64, error)
}

// NewBuilder returns a builder for the checkout of the current directory and the user's cache. Without names, it builds
// all tools.
func NewBuilder(progress io.Writer, names ...string) (*Builder, error) {
	checkout, err := Checkout()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Builder{Checkout: checkout, Cache: cache, Progress: progress, Only: names, compile: golang{progress}.build, freeSpace: freeSpace}, nil
}

// Build builds all missing tools and returns the directories of all tools. A killed build leaves no partial tool. Tools
// that were finished before stay.
func (b *Builder) Build(ctx context.Context) (Set, error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("create the cache directory: %w", err)
	}
	if err := b.checkGiven(ctx); err != nil {
		return nil, err
	}
	if found, missing, err := b.find(); err != nil || len(missing) == 0 {
		return found, err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.removeLeftovers(); err != nil {
		return nil, err
	}

	all, set := b.tools(), Set{}
	begun := time.Now()
	for i, tool := range all {
		folder, version, err := tool.place(b.Checkout, b.Cache)
		if err != nil {
			return nil, err
		}
		set[tool.Name] = folder
		title := fmt.Sprintf("[%2d/%d] %s %s", i+1, len(all), tool.Name, version)
		if _, err := os.Stat(filepath.Join(folder, tool.Name)); err == nil {
			fmt.Fprintf(b.Progress, "%s: already built\n", title)
			continue
		}
		since := time.Now()
		stop := heartbeat(b.Progress, title, since)
		err = b.buildOne(ctx, tool, version, folder)
		stop()
		if err != nil {
			return nil, fmt.Errorf("build %s %s: %w", tool.Name, version, err)
		}
		fmt.Fprintf(b.Progress, "%s: built in %s (%s so far)\n", title, seconds(since), seconds(begun))
	}
	return set, nil
}

// tools returns the tools to build.
func (b *Builder) tools() []Tool {
	return slices.DeleteFunc(All(), func(t Tool) bool { return len(b.Only) > 0 && !slices.Contains(b.Only, t.Name) })
}

// buildOne builds into a temporary directory and renames it, so that a directory with the final name is always
// complete.
func (b *Builder) buildOne(ctx context.Context, tool Tool, version, folder string) error {
	if err := b.checkSpace(); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(b.Cache, leftoverPrefix+tool.Name+"-")
	if err != nil {
		return fmt.Errorf("create a directory to build in: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	if err := b.compile(ctx, tool, b.Checkout, version, filepath.Join(unfinished, tool.Name)); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("%w: free some space in %s or in Go's caches (go clean -cache) and run it again", err, b.Cache)
		}
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(unfinished, folder)
}

func (b *Builder) checkSpace() error {
	free, err := b.freeSpace(b.Cache)
	if err != nil {
		return fmt.Errorf("get free space of %s: %w", b.Cache, err)
	}
	if free < spaceToBuild {
		return fmt.Errorf("%s has %d MiB left and a build needs up to %d MiB: free some space, or set XDG_CACHE_HOME to another disk",
			b.Cache, free>>20, uint64(spaceToBuild)>>20)
	}
	return nil
}

// leftoverPrefix is the prefix of directories of killed builds.
const leftoverPrefix = "unfinished-"

func (b *Builder) removeLeftovers() error {
	leftovers, err := filepath.Glob(filepath.Join(b.Cache, leftoverPrefix+"*"))
	if err != nil {
		return err
	}
	for _, leftover := range leftovers {
		if err := os.RemoveAll(leftover); err != nil {
			return fmt.Errorf("remove what a killed build left: %w", err)
		}
	}
	return nil
}

func freeSpace(folder string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return 0, err
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

func seconds(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }
