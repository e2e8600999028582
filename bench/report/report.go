// Package report prints the results of a benchmark as a table, saves them as JSON, and records the machine.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Figure is one line of the table. A figure that was measured several times has all values, and Value is their median.
type Figure struct {
	What   string    `json:"what"`
	Value  float64   `json:"value"`
	Values []float64 `json:"values,omitempty"` // in the order of the runs, if there were several
	Unit   string    `json:"unit"`
	Target float64   `json:"target,omitempty"` // maximum or minimum. If 0, none
	Least  bool      `json:"least,omitempty"`  // the target is a minimum
}

// Missed reports whether a target was not reached.
func (f Figure) Missed() bool {
	if f.Target == 0 {
		return false
	}
	if f.Least {
		return f.Value < f.Target
	}
	return f.Value > f.Target
}

// Report is a list of figures.
type Report struct {
	Title   string   `json:"title"`
	Machine string   `json:"machine"`
	Commit  string   `json:"commit"`
	Load    string   `json:"load"` // of the machine at the start
	At      string   `json:"at"`
	Command string   `json:"command,omitempty"`
	Failed  string   `json:"failed,omitempty"` // reason for missing figures
	Figures []Figure `json:"figures"`
}

// New returns an empty report.
func New(title string) *Report {
	return &Report{Title: title, Machine: machine(), Commit: commit(), Load: load(), At: time.Now().UTC().Format(time.DateTime),
		Command: strings.Join(os.Args[1:], " ")}
}

// Add adds a figure without a target. If the figure exists, it adds a value.
func (r *Report) Add(what string, value float64, unit string) {
	r.add(Figure{What: what, Value: value, Unit: unit})
}

// AtMost adds a figure with a maximum.
func (r *Report) AtMost(target float64, what string, value float64, unit string) {
	r.add(Figure{What: what, Value: value, Unit: unit, Target: target})
}

// AtLeast adds a figure with a minimum.
func (r *Report) AtLeast(target float64, what string, value float64, unit string) {
	r.add(Figure{What: what, Value: value, Unit: unit, Target: target, Least: true})
}

func (r *Report) add(f Figure) {
	for i := range r.Figures {
		known := &r.Figures[i]
		if known.What != f.What {
			continue
		}
		if len(known.Values) == 0 {
			known.Values = []float64{known.Value}
		}
		known.Values = append(known.Values, f.Value)
		known.Value = Median(known.Values)
		return
	}
	r.Figures = append(r.Figures, f)
}

// Median returns the middle value, or the mean of the two middle values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Percentile returns the smallest of sorted values such that at least p percent of the values are not larger.
func Percentile[T any](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	n := int(math.Ceil(float64(len(sorted)) * p / 100))
	return sorted[min(max(n, 1), len(sorted))-1]
}

// Part is one part of a benchmark.
type Part struct {
	Name string
	Do   func(context.Context) error
}

// Run runs the parts in order and prints their names.
func Run(ctx context.Context, parts ...Part) error {
	for _, part := range parts {
		Progress("%s", part.Name)
		if err := part.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}

// Finish prints and saves the report.
func (r *Report) Finish(file string) error { return r.End(file, nil) }

// End is Finish for a benchmark with a part that may have failed. It keeps the figures measured before.
func (r *Report) End(file string, failed error) error {
	if failed != nil {
		r.Failed = failed.Error()
	}
	return errors.Join(failed, r.Print(os.Stdout), r.Save(file))
}

// Print writes the table.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n%s, %s, load %s at start, %s UTC\n", r.Title, r.Machine, r.Commit, r.Load, r.At)
	if r.Failed != "" {
		fmt.Fprintf(out, "INCOMPLETE: %s\n", r.Failed)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median\tleast to most\ttarget\t\t")
	for _, f := range r.Figures {
		target, result, spread := "", "", ""
		if f.Target > 0 {
			sign := "≤"
			if f.Least {
				sign = "≥"
			}
			target = fmt.Sprintf("%s %.4g %s", sign, f.Target, f.Unit)
			if result = "ok"; f.Missed() {
				result = "MISSED"
			}
		}
		if len(f.Values) > 1 {
			spread = number(slices.Min(f.Values)) + " to " + number(slices.Max(f.Values))
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\t  %s\n", number(f.Value), f.Unit, spread, target, result, f.What)
	}
	return w.Flush()
}

// number formats a value with a useful number of digits.
func number(v float64) string {
	if v >= 1000 || v <= -1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Save writes the figures as JSON.
func (r *Report) Save(file string) error {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("save the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("save the figures: %w", err)
	}
	return os.WriteFile(file, append(body, '\n'), 0o600)
}

// Progress prints the current step to standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	return fmt.Sprintf("%d cores (%s), %s", runtime.NumCPU(), model, runtime.Version())
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit " + strings.TrimSpace(string(out))
}
