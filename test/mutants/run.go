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
	seeds     uint64
	seedsOnly bool
	parallel  int
	budget    time.Duration
}

// packages lists the mutated packages. Each imports those before it, so a mutant is tested from its own package on.
var packages = []string{"engine", "kind", "reconcile"}

// runner runs the tests of mutants.
type runner struct {
	options
	root  string              // of the repository
	temp  string              // directory for the overlay and the binaries
	flags map[string][]string // by package, for its test binary

	// Duration of each binary without a mutant. A run that takes several times as long hangs.
	usual map[string]time.Duration
}

// result is the result of a mutant.
type result struct {
	mutant
	killer string // test, seed or failure that detected it. If empty, a survivor
	seed   bool   // the simulator detected it
	run    bool   // false if the budget was exhausted before
	took   time.Duration
}

func newRunner(o options) (*runner, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the programs: %w", err)
	}
	return &runner{options: o, root: root, temp: temp, flags: map[string][]string{}, usual: map[string]time.Duration{}}, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.temp) }

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// runAll checks that everything passes without a mutant, and then runs all mutants.
func (r *runner) runAll(ctx context.Context, mutants []mutant) ([]result, error) {
	fmt.Fprintf(os.Stderr, "compiling the tests and the simulator with %d mutants\n", len(mutants))
	if err := r.build(ctx, mutants); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "running the tests and %d seeds without a mutant\n", r.seeds)
	killer, _, err := r.try(ctx, "", packages[0])
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
				fmt.Fprintf(os.Stderr, "%d of %d: %s: %s (%.1f s)\n", i+1, len(mutants), res.name, res.outcome(), res.took.Seconds())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return results, errors.Join(append(failures, ctx.Err())...)
}

// build compiles the test binaries and the simulator, each with all mutants.
func (r *runner) build(ctx context.Context, mutants []mutant) error {
	replaced, err := overlay(r.root, mutants)
	if err != nil {
		return err
	}
	file, err := writeOverlay(r.temp, replaced)
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := r.compile(ctx, "test", "-c", "-vet=off", "-overlay", file, "-o", r.program(p), "./internal/"+p); err != nil {
			return err
		}
		if r.flags[p], err = r.testFlags(ctx, p); err != nil {
			return err
		}
	}
	if r.seeds == 0 {
		return nil
	}
	return r.compile(ctx, "build", "-overlay", file, "-o", r.program("sim"), "./internal/sim/cmd/sim")
}

func (r *runner) program(name string) string { return filepath.Join(r.temp, name+".program") }

// writeOverlay writes the replaced files and their list for go build.
func writeOverlay(dir string, replaced map[string][]byte) (string, error) {
	list := struct{ Replace map[string]string }{map[string]string{}}
	for file, content := range replaced {
		changed := filepath.Join(dir, strconv.Itoa(len(list.Replace))+"_"+filepath.Base(file))
		if err := os.WriteFile(changed, content, 0o600); err != nil {
			return "", fmt.Errorf("write a file with mutants: %w", err)
		}
		list.Replace[file] = changed
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return name, nil
}

// testFlags returns flags that make the random tests of a package repeatable. They use a fixed seed, do not shrink
// examples, and leave no file.
func (r *runner) testFlags(ctx context.Context, pkg string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.TestImports}}", "./internal/"+pkg)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./internal/%s: %w", pkg, err)
	}
	flags := []string{"-test.short", "-test.failfast"}
	if strings.Contains(string(out), "pgregory.net/rapid") {
		flags = append(flags, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	return flags, nil
}

func (r *runner) compile(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// one runs one mutant.
func (r *runner) one(ctx context.Context, m mutant) (result, error) {
	start := time.Now()
	killer, seed, err := r.try(ctx, m.name, m.pkg())
	if err != nil {
		err = fmt.Errorf("mutant %s: %w", m.name, err)
	}
	return result{mutant: m, killer: killer, seed: seed, run: true, took: time.Since(start)}, err
}

// try runs the unit tests of a package and of its importers, and then the simulator, until something fails. It returns
// the failure, or "".
func (r *runner) try(ctx context.Context, name, pkg string) (killer string, seed bool, err error) {
	tested := packages[slices.Index(packages, pkg):]
	if r.seedsOnly {
		tested = nil
	}
	for _, p := range tested {
		out, failure, err := r.execute(ctx, name, p, filepath.Join(r.root, "internal", p), r.flags[p]...)
		if err != nil {
			return "", false, err
		}
		if failure != "" {
			return p + "." + failedTest(out, failure), false, nil
		}
	}
	if r.seeds == 0 {
		return "", false, nil
	}
	out, failure, err := r.execute(ctx, name, "sim", r.temp, "-stop", "-seeds", strconv.FormatUint(r.seeds, 10))
	if err != nil || failure == "" {
		return "", false, err
	}
	return failedSeed(out, failure), true, nil
}

// memory limits a process, in KiB: a mutant may not terminate.
const memory = 6 << 20

// execute runs a binary with a mutant and returns its output and its failure, or "".
func (r *runner) execute(ctx context.Context, name, program, dir string, args ...string) (out []byte, failure string, err error) {
	limit := 10 * time.Minute
	usual, measured := r.usual[program]
	if measured {
		limit = 6*usual + 30*time.Second
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	cmd := exec.CommandContext(limited, "sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, memory), r.program(program)}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), selector+"="+name)
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
		return out, "", fmt.Errorf("run the tests of %s: %w", program, err)
	}
	if !measured { // the first run has no mutant
		r.usual[program] = took
	}
	return out, "", nil
}

var (
	testFailure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	seedFailure = regexp.MustCompile(`(?m)^(seed \d+): violation: (.*)$`)
	crash       = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)$`)
)

// failedTest returns the name of the first failed test, or of the case in a table of cases.
func failedTest(out []byte, failure string) string {
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
	return crashOr(out, failure)
}

// failedSeed returns the seed that failed.
func failedSeed(out []byte, failure string) string {
	if m := seedFailure.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "simulator: " + crashOr(out, failure)
}

func crashOr(out []byte, failure string) string {
	if m := crash.FindSubmatch(out); m != nil {
		return fmt.Sprintf("%.60s", m[1])
	}
	return failure
}
