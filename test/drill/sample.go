package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/product"
)

// sample is the size of the programs at one time.
type sample struct {
	after  time.Duration
	values map[string][2]float64 // by program: MB, goroutines
}

func (d *drill) programs() map[string]*product.Program {
	all := map[string]*product.Program{"principal": d.product.Principal}
	if d.product.Hubs != nil {
		all["second principal"] = d.product.Hubs.Second
	}
	for name, a := range d.product.Agents {
		all["agent "+name] = &a.Program
	}
	return all
}

func (d *drill) sample(ctx context.Context, after time.Duration) error {
	s := sample{after: after, values: map[string][2]float64{}}
	for name, p := range d.programs() {
		goroutines, err := p.Metric(ctx, "go_goroutines")
		if err != nil {
			return err
		}
		s.values[name] = [2]float64{float64(p.Status().Memory) / 1e6, goroutines}
	}
	d.samples = append(d.samples, s)
	return nil
}

// printSamples prints the curves of memory and goroutines, with a bar for the memory of each program.
func (d *drill) printSamples() {
	for _, name := range slices.Sorted(maps.Keys(d.programs())) {
		largest := 1.0
		for _, s := range d.samples {
			largest = max(largest, s.values[name][0])
		}
		fmt.Fprintf(d.out, "\n%-20s %8s %11s\n", name, "MB", "goroutines")
		for _, s := range d.samples {
			v := s.values[name]
			fmt.Fprintf(d.out, "%20s %8.1f %11.0f  %s\n", s.after.Round(time.Second), v[0], v[1], strings.Repeat("#", int(40*v[0]/largest)))
		}
	}
}

// writeSamples writes the curves as CSV: seconds, program, MB, goroutines.
func (d *drill) writeSamples() error {
	if d.file == "" {
		return nil
	}
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	rows := [][]string{{"seconds", "program", "megabytes", "goroutines"}}
	for _, s := range d.samples {
		for _, name := range slices.Sorted(maps.Keys(s.values)) {
			v := s.values[name]
			rows = append(rows, []string{strconv.Itoa(int(s.after.Seconds())), name, strconv.FormatFloat(v[0], 'f', 1, 64), strconv.FormatFloat(v[1], 'f', 0, 64)})
		}
	}
	if err := cmp.Or(w.WriteAll(rows), os.MkdirAll(filepath.Dir(d.file), 0o755)); err != nil {
		return err
	}
	return os.WriteFile(d.file, text.Bytes(), 0o644)
}
