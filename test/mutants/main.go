// Command mutants measures what the tests of the core detect. Its table lists small changes of internal/engine,
// internal/kind and internal/reconcile. Each removes one safety check or one obligation. The command runs the unit
// tests and then seeds of the simulator with one mutant at a time. A mutant that no test and no seed detects is a
// survivor.
//
// The work tree is not changed: the mutants are compiled with an overlay (go help build).
//
// A survivor fails the run unless the table documents it as redundant with a reason. A mutant that is documented as
// redundant and that a test detects also fails the run, because the reason is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

func run(ctx context.Context) error {
	var o options
	pattern := flag.String("run", "", "run only mutants whose `PACKAGE/NAME` matches this regular expression")
	flag.Uint64Var(&o.seeds, "seeds", 300, "simulator seeds for each mutant that the unit tests do not notice; 0: unit tests only")
	flag.BoolVar(&o.seedsOnly, "seeds-only", false, "do not run the unit tests, to see what the simulator notices by itself")
	flag.IntVar(&o.parallel, "p", 1, "number of mutants to run at the same time")
	flag.DurationVar(&o.budget, "budget", 0, "start no mutant after this time; 0: run all")
	list := flag.Bool("list", false, "print the table without running anything")
	flag.Parse()
	selected, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("parse -run: %w", err)
	}
	all, err := readTable()
	if err != nil {
		return err
	}
	var mutants []mutant
	for _, m := range all {
		if selected.MatchString(m.pkg() + "/" + m.name) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		return errors.New("no mutant has such a name")
	}
	if *list {
		for _, m := range mutants {
			fmt.Printf("%-40s %-7s %s\n", m.name, m.pkg(), m.breaks)
		}
		return nil
	}
	r, err := newRunner(o)
	if err != nil {
		return err
	}
	defer r.close()
	start := time.Now()
	results, err := r.runAll(ctx, mutants)
	if err != nil {
		return err
	}
	return report(os.Stdout, results, o.seeds, time.Since(start))
}
