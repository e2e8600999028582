// Command compare prints the figures of two revisions next to each other: medians, spread and ratio. make bench-compare
// runs it. The runs of both revisions alternate, so that other load on the machine affects both.
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
	base := flag.String("base", "", "glob pattern of the reports of the old revision")
	now := flag.String("new", "", "glob pattern of the reports of the new revision")
	flag.Parse()
	if err := run(*base, *now); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// values are the values of one figure in all runs of a revision.
type values []float64

func (v values) median() float64 { return report.Median(v) }

// spread returns the range of the values in percent of the median.
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

// load reads reports. It returns the values of each figure, and the figures in their order.
func load(pattern string) (map[string]values, []report.Figure, error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("no report matches %q", pattern)
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
			f.What = currentName(f.What)
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
