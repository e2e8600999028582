package main

import (
	"fmt"
	"io"
	"time"
)

// outcome describes the result of a mutant in a few words.
func (r result) outcome() string {
	switch {
	case !r.run:
		return "not run"
	case r.killer != "" && r.redundant != "":
		return "documented as redundant, but noticed by " + r.killer
	case r.killer != "":
		return r.killer
	case r.redundant != "":
		return "redundant"
	}
	return "SURVIVES"
}

// report prints the table. It returns an error if the run has failed.
func report(w io.Writer, results []result, seeds uint64, took time.Duration) error {
	var tests, sim, redundant, survivors, wrong, missing int
	fmt.Fprintf(w, "%-36s %-7s %-90s %8s\n", "mutant", "package", "noticed by", "time")
	for _, r := range results {
		fmt.Fprintf(w, "%-36s %-7s %-90.90s %6.0f s\n", r.name, r.pkg(), r.outcome(), r.took.Seconds())
		switch {
		case !r.run:
			missing++
		case r.killer != "" && r.redundant != "":
			wrong++
		case r.seed:
			sim++
		case r.killer != "":
			tests++
		case r.redundant != "":
			redundant++
		default:
			survivors++
		}
	}
	for _, r := range results {
		if r.redundant != "" {
			fmt.Fprintf(w, "redundant: %s: %s\n", r.name, r.redundant)
		}
	}
	for _, r := range results {
		if r.run && r.killer == "" && r.redundant == "" {
			fmt.Fprintf(w, "survivor: %s (%s, %s): %s\n  - %s\n  + %s\n", r.name, r.file, r.function, r.breaks, r.before, r.after)
		}
	}
	fmt.Fprintf(w, "%d mutants: %d noticed by unit tests, %d by %d seeds, %d redundant, %d survive", len(results), tests, sim, seeds, redundant, survivors)
	if missing > 0 {
		fmt.Fprintf(w, ", %d not run", missing)
	}
	fmt.Fprintf(w, " (%.0f minutes)\n", took.Minutes())
	switch {
	case survivors > 0:
		return fmt.Errorf("%d mutants survive: add a test that notices each, simplify the code, or document in the table why it is redundant", survivors)
	case wrong > 0:
		return fmt.Errorf("%d mutants are documented as redundant, but are noticed", wrong)
	}
	return nil
}
