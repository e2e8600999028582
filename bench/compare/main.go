// Command compare sets runs of a benchmark side by side, of two revisions: medians, their spread, and the ratio. It is
// what make bench-compare ends with; the runs alternate, so that a machine that slows down slows down both.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

func main() {
	base := flag.String("base", "", "pattern of the files with the reports of the old revision")
	now := flag.String("new", "", "pattern of those of the new one")
	flag.Parse()
	if err := run(*base, *now); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// values of one figure in all runs of a revision.
type values []float64

func (v values) median() float64 { return report.Median(v) }

// spread is how far the runs are apart, in percent of the median.
func (v values) spread() float64 {
	if v.median() == 0 {
		return 0
	}
	return 100 * (slices.Max(v) - slices.Min(v)) / math.Abs(v.median())
}

func run(base, now string) error {
	old, _, err := load(base)
	if err != nil {
		return err
	}
	current, order, err := load(now)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "base\t\tnew\t\tnew/base\t\t")
	for _, f := range order {
		before, ok := old[f.What]
		if !ok {
			continue
		}
		after := current[f.What]
		ratio := "-"
		if before.median() != 0 {
			ratio = fmt.Sprintf("%.2f", after.median()/before.median())
		}
		fmt.Fprintf(w, "%.4g %s\t±%.0f %%\t%.4g %s\t±%.0f %%\t%s\t  %s\n", before.median(), f.Unit, before.spread()/2, after.median(), f.Unit, after.spread()/2, ratio, f.What)
	}
	return w.Flush()
}

// load reads reports: what was measured, and in which order it is shown.
func load(pattern string) (map[string]values, []report.Figure, error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("there is no report %q", pattern)
	}
	all := map[string]values{}
	var order []report.Figure
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		var r report.Report
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, f := range r.Figures {
			if all[f.What] == nil {
				order = append(order, f)
			}
			if len(f.Values) > 0 {
				all[f.What] = append(all[f.What], f.Values...)
			} else {
				all[f.What] = append(all[f.What], f.Value)
			}
		}
	}
	return all, order, nil
}
