package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	seeds    uint64
	parallel int
	budget   time.Duration
}

// packages are those that are mutated. Each imports those before it, so a mutant is tested from its own package on.
var packages = []string{"engine", "kind", "node"}

// runner compiles and runs the tests of mutants.
type runner struct {
	options
	root  string              // of the repository
	temp  string              // folder for overlays and programs
	flags map[string][]string // by package, for its test program

	// How long each program takes without a mutant. One that takes several times as long hangs.
	usual map[string]time.Duration
}

// result is what became of a mutant.
type result struct {
	mutant
	killer string // test, seed or failure that noticed it; empty: a survivor
	seed   bool   // it was the simulator that did
	run    bool   // false: the budget was spent before
	took   time.Duration
}

func newRunner(o options) (*runner, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for overlays: %w", err)
	}
	return &runner{options: o, root: root, temp: temp, flags: map[string][]string{}, usual: map[string]time.Duration{}}, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.temp) }

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output() //nolint:noctx // it takes milliseconds
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// runAll makes sure that everything passes without a mutant, and then runs all of them.
func (r *runner) runAll(ctx context.Context, mutants []mutant) ([]result, error) {
	for _, p := range packages {
		flags, err := r.testFlags(ctx, p)
		if err != nil {
			return nil, err
		}
		r.flags[p] = flags
	}
	for _, m := range mutants {
		if _, err := r.overlay(m); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(os.Stderr, "running the tests and %d seeds without a mutant\n", r.seeds)
	killer, _, err := r.try(ctx, "none", packages[0], nil)
	if err != nil {
		return nil, err
	}
	if killer != "" {
		return nil, fmt.Errorf("%s fails without a mutant; mutants tell nothing until that is repaired", killer)
	}
	start := time.Now()
	results := make([]result, len(mutants))
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		next     int
		failures []error
	)
	for range max(r.parallel, 1) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(mutants) || ctx.Err() != nil {
					return
				}
				if r.budget > 0 && time.Since(start) > r.budget {
					results[i] = result{mutant: mutants[i]}
					continue
				}
				res, err := r.one(ctx, mutants[i])
				mu.Lock()
				results[i] = res
				if err != nil {
					failures = append(failures, err)
				}
				fmt.Fprintf(os.Stderr, "%d of %d: %s: %s (%.0f s)\n", i+1, len(mutants), res.name, res.verdict(), res.took.Seconds())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return results, errors.Join(append(failures, ctx.Err())...)
}

// one runs one mutant.
func (r *runner) one(ctx context.Context, m mutant) (result, error) {
	start := time.Now()
	replaced, err := r.overlay(m)
	if err != nil {
		return result{mutant: m}, err
	}
	killer, seed, err := r.try(ctx, m.name, m.pkg(), replaced)
	if err != nil {
		err = fmt.Errorf("mutant %s: %w", m.name, err)
	}
	return result{mutant: m, killer: killer, seed: seed, run: true, took: time.Since(start)}, err
}

// overlay returns the changed file of a mutant, by the name of the file that it replaces.
func (r *runner) overlay(m mutant) (map[string][]byte, error) {
	file := filepath.Join(r.root, "internal", filepath.FromSlash(m.file))
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.name, err)
	}
	changed, err := m.apply(source)
	return map[string][]byte{file: changed}, err
}

// try runs the unit tests of a package and of those that import it, and then the simulator, until something fails. It
// returns what did; empty: nothing. The replaced files take the place of those in the work tree.
func (r *runner) try(ctx context.Context, name, pkg string, replaced map[string][]byte) (killer string, seed bool, err error) {
	dir := filepath.Join(r.temp, name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nothing secret
		return "", false, fmt.Errorf("create a folder for the overlay: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := writeOverlay(dir, replaced)
	if err != nil {
		return "", false, err
	}
	for _, p := range packages[slices.Index(packages, pkg):] {
		program := filepath.Join(dir, p+".test")
		if err := r.compile(ctx, "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "./internal/"+p); err != nil {
			return "", false, err
		}
		args := append([]string{"-test.short", "-test.failfast"}, r.flags[p]...)
		out, verdict, err := r.execute(ctx, p, filepath.Join(r.root, "internal", p), program, args...)
		if err != nil {
			return "", false, err
		}
		if verdict != "" {
			return p + "." + failedTest(out, verdict), false, nil
		}
	}
	if r.seeds == 0 {
		return "", false, nil
	}
	program := filepath.Join(dir, "sim")
	if err := r.compile(ctx, "build", "-overlay", overlay, "-o", program, "./internal/sim/cmd/sim"); err != nil {
		return "", false, err
	}
	out, verdict, err := r.execute(ctx, "sim", dir, program, "-stop", "-seeds", strconv.FormatUint(r.seeds, 10))
	if err != nil || verdict == "" {
		return "", false, err
	}
	return failedSeed(out, verdict), true, nil
}

func writeOverlay(dir string, replaced map[string][]byte) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, content := range replaced {
		changed := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(changed, content, 0o600); err != nil {
			return "", fmt.Errorf("write the changed file: %w", err)
		}
		overlay.Replace[file] = changed
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return name, nil
}

// testFlags returns the flags that make the random tests of a package repeatable. They draw the same every time, do not
// spend time on a smaller example, and leave no file behind.
func (r *runner) testFlags(ctx context.Context, pkg string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.TestImports}}", "./internal/"+pkg)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./internal/%s: %w", pkg, err)
	}
	if !strings.Contains(string(out), "pgregory.net/rapid") {
		return nil, nil
	}
	return []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"}, nil
}

func (r *runner) compile(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// memory bounds a test program, in KiB: a mutant may never come to an end.
const memory = 6 << 20

// execute runs a test program and returns what it says, and how it failed; empty: it did not.
func (r *runner) execute(ctx context.Context, key, dir, program string, args ...string) (out []byte, verdict string, err error) {
	limit := 10 * time.Minute
	if usual, ok := r.usual[key]; ok {
		limit = 6*usual + time.Minute
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	cmd := exec.CommandContext(limited, "sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, memory), program}, args...)...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err = cmd.CombinedOutput()
	took := time.Since(start)
	switch _, failed := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return out, "", ctx.Err()
	case limited.Err() != nil:
		return out, "timeout", nil
	case failed:
		return out, "failure", nil
	case err != nil:
		return out, "", fmt.Errorf("run %s: %w", filepath.Base(program), err)
	}
	if _, ok := r.usual[key]; !ok { // the first run is the one without a mutant
		r.usual[key] = took
	}
	return out, "", nil
}

var (
	testFailure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	seedFailure = regexp.MustCompile(`(?m)^(seed \d+): violation: (.*)$`)
	crash       = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)$`)
)

// failedTest returns the name of the first test that failed. Of a table of cases it is the case.
func failedTest(out []byte, verdict string) string {
	all := testFailure.FindAllSubmatch(out, -1)
	if len(all) > 0 {
		name := string(all[0][1])
		for _, m := range all[1:] {
			if strings.HasPrefix(string(m[1]), name+"/") {
				name = string(m[1])
			}
		}
		return name
	}
	return crashOr(out, verdict)
}

// failedSeed returns the seed that failed.
func failedSeed(out []byte, verdict string) string {
	if m := seedFailure.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "simulator: " + crashOr(out, verdict)
}

func crashOr(out []byte, verdict string) string {
	if m := crash.FindSubmatch(out); m != nil {
		return fmt.Sprintf("%.60s", m[1])
	}
	return verdict
}
