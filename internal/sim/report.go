package sim

import (
	"fmt"
	"strings"
	"sync"
)

// Report sums up many seeds.
type Report struct {
	Seeds    int
	Steps    int
	Checks   int
	Broken   int // violations
	rows     map[string]*row
	failures []Result // shrunk
	others   []Result // failing too
	longest  Result
}

type row struct{ seeds, steps, checks, broken int }

// Failed reports whether anything went wrong.
func (r *Report) Failed() bool { return r.Broken > 0 }

func (r *Report) add(res Result) {
	r.Seeds++
	r.Steps += res.Steps
	r.Checks += res.Checks
	r.Broken += len(res.Violations)
	faults := res.Faults
	if len(faults) == 0 {
		faults = []string{"(none)"}
	}
	for _, f := range faults {
		x := r.rows[f]
		if x == nil {
			x = &row{}
			r.rows[f] = x
		}
		x.seeds++
		x.steps += res.Steps
		x.checks += res.Checks
		x.broken += len(res.Violations)
	}
}

// maxFailures is how many failing seeds are shrunk and shown.
const maxFailures = 3

// Many runs seeds, some at a time, and reports progress.
func Many(first, count uint64, workers int, progress func(done uint64, steps int)) *Report {
	report := &Report{rows: map[string]*row{}}
	results := make([]Result, 0, count)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := first
	for range max(workers, 1) {
		wg.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if n >= first+count {
					return
				}
				res := Run(Seed{Number: n}, nil)
				mu.Lock()
				results = append(results, res)
				report.Steps += res.Steps
				if done := uint64(len(results)); done%max(count/10, 100) == 0 && progress != nil {
					progress(done, report.Steps)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	report.Steps = 0
	for _, res := range results {
		report.add(res)
		if res.Steps > report.longest.Steps {
			report.longest = res
		}
		switch {
		case len(res.Violations) == 0:
		case len(report.failures) < maxFailures:
			report.failures = append(report.failures, Shrink(res))
		default:
			report.others = append(report.others, res)
		}
	}
	return report
}

// String is the table, the failing seeds, and the result.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %8s %12s %10s %11s\n", "fault", "seeds", "steps", "checks", "violations")
	for _, name := range sortedKeys(r.rows) {
		x := r.rows[name]
		fmt.Fprintf(&b, "%-26s %8d %12d %10d %11d\n", name, x.seeds, x.steps, x.checks, x.broken)
	}
	fmt.Fprintf(&b, "%-26s %8d %12d %10d %11d\n", "all", r.Seeds, r.Steps, r.Checks, r.Broken)
	fmt.Fprintf(&b, "longest: seed %s with %d steps\n", r.longest.Seed, r.longest.Steps)
	for _, f := range r.others {
		what, more, _ := strings.Cut(f.Violations[0], "\n")
		what += more[:min(len(more), 120)]
		fmt.Fprintf(&b, "failing seed %s: %.300s\n", f.Seed, strings.ReplaceAll(what, "\n", " "))
	}
	for _, f := range r.failures {
		fmt.Fprintf(&b, "\nfailing seed, shrunk to %d actions; replay it with: make sim SEED=%s\n", len(f.Seed.Keep), f.Seed)
		for _, v := range f.Violations {
			fmt.Fprintf(&b, "  %s\n", v)
		}
	}
	fmt.Fprintf(&b, "%d seeds, %d violations\n", r.Seeds, r.Broken)
	return b.String()
}
