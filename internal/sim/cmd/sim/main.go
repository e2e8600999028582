// The sim program runs the simulator: many seeds with a table at the end, or one seed with its transcript.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/sim"
)

func main() { os.Exit(run()) }

func run() int {
	seeds := flag.Uint64("seeds", 200, "how many `seeds` to run")
	first := flag.Uint64("first", 1, "the first of them")
	seed := flag.String("seed", "", "run this one `seed` and print its transcript")
	workers := flag.Int("workers", 1, "how many seeds to run at a time")
	stop := flag.Bool("stop", false, "stop at the first seed that fails, and do not shrink it")
	flag.Parse()
	if *seed != "" {
		return replay(*seed)
	}
	if *stop {
		return untilFailure(*first, *seeds)
	}
	start := time.Now()
	report := sim.Many(*first, *seeds, *workers, func(done uint64, steps int) {
		fmt.Fprintf(os.Stderr, "%d seeds, %d steps, %.0f steps a minute\n", done, steps, float64(steps)/time.Since(start).Minutes())
	})
	fmt.Print(report)
	if report.Failed() {
		return 1
	}
	return 0
}

// untilFailure runs seeds until one fails.
func untilFailure(first, seeds uint64) int {
	for n := first; n < first+seeds; n++ {
		if r := sim.Run(sim.Seed{Number: n}, nil); len(r.Violations) > 0 {
			fmt.Printf("seed %s: violation: %s\n", r.Seed, r.Violations[0])
			return 1
		}
	}
	fmt.Printf("%d seeds, 0 violations\n", seeds)
	return 0
}

func replay(text string) int {
	seed, err := sim.ParseSeed(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	r := sim.Run(seed, func(line string) { fmt.Println(line) })
	fmt.Printf("seed %s: %d steps, %d checks, %d messages, %d bytes\n", r.Seed, r.Steps, r.Checks, r.Messages, r.Bytes)
	for _, v := range r.Violations {
		fmt.Println("violation:", v)
	}
	fmt.Printf("1 seeds, %d violations\n", len(r.Violations))
	if len(r.Violations) > 0 {
		return 1
	}
	return 0
}
