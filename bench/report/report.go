// Package report is what every benchmark ends with: a table for people, the same as JSON for programs, and where it was
// measured.
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

// Figure is one line of the table. What was measured several times has all values, and their median is the one.
type Figure struct {
	What   string    `json:"what"`
	Value  float64   `json:"value"`
	Values []float64 `json:"values,omitempty"` // in the order of the runs, if there were several
	Unit   string    `json:"unit"`
	Target float64   `json:"target,omitempty"` // at most, or at least; 0: none
	Least  bool      `json:"least,omitempty"`  // the target is what is at least wanted
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

// Report is a list of figures in the making.
type Report struct {
	Title   string   `json:"title"`
	Machine string   `json:"machine"`
	Commit  string   `json:"commit"`
	Load    string   `json:"load"` // of the machine when it began: others may have been at work
	At      string   `json:"at"`
	Command string   `json:"command,omitempty"`
	Failed  string   `json:"failed,omitempty"` // why some figures are missing
	Figures []Figure `json:"figures"`
}

// New begins a report.
func New(title string) *Report {
	return &Report{Title: title, Machine: machine(), Commit: commit(), Load: load(), At: time.Now().UTC().Format(time.DateTime),
		Command: strings.Join(os.Args[1:], " ")}
}

// Add adds a figure without a target. A figure that is there already gets one value more.
func (r *Report) Add(what string, value float64, unit string) {
	r.add(Figure{What: what, Value: value, Unit: unit})
}

// AtMost adds a figure that must not be larger than the target.
func (r *Report) AtMost(target float64, what string, value float64, unit string) {
	r.add(Figure{What: what, Value: value, Unit: unit, Target: target})
}

// AtLeast adds a figure that must not be smaller than the target.
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

// Median is the value in the middle; of an even number, between the two in the middle.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Percentile is the smallest of sorted values that no less than p percent of them are at most as large as.
func Percentile[T any](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	n := int(math.Ceil(float64(len(sorted)) * p / 100))
	return sorted[min(max(n, 1), len(sorted))-1]
}

// Part is one of the things that a benchmark does.
type Part struct {
	Name string
	Do   func(context.Context) error
}

// Run does one part after the other, and says which.
func Run(ctx context.Context, parts ...Part) error {
	for _, part := range parts {
		Progress("%s", part.Name)
		if err := part.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}

// Finish prints the table, and saves it.
func (r *Report) Finish(file string) error { return r.End(file, nil) }

// End is Finish for when a part may have failed: what was measured before it is shown nevertheless.
func (r *Report) End(file string, failed error) error {
	if failed != nil {
		r.Failed = failed.Error()
	}
	return errors.Join(failed, r.Print(os.Stdout), r.Save(file))
}

// Print writes the table.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n%s, %s, load %s when it began, %s UTC\n", r.Title, r.Machine, r.Commit, r.Load, r.At)
	if r.Failed != "" {
		fmt.Fprintf(out, "INCOMPLETE: %s\n", r.Failed)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median\tleast to most\ttarget\t\t")
	for _, f := range r.Figures {
		target, verdict, spread := "", "", ""
		if f.Target > 0 {
			sign := "≤"
			if f.Least {
				sign = "≥"
			}
			target = fmt.Sprintf("%s %.4g %s", sign, f.Target, f.Unit)
			if verdict = "ok"; f.Missed() {
				verdict = "MISSED"
			}
		}
		if len(f.Values) > 1 {
			spread = number(slices.Min(f.Values)) + " to " + number(slices.Max(f.Values))
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\t  %s\n", number(f.Value), f.Unit, spread, target, verdict, f.What)
	}
	return w.Flush()
}

// number writes a value with as many digits as people want to see.
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

// Progress tells on standard error what a benchmark is about to do.
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
