// Command collect joins the reports of several benchmarks, and the output of go test -bench, into one file for make
// bench.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

func main() {
	out := flag.String("out", "dist/bench.json", "file for all of them")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Puts reports of benchmarks into one file.\n\n  collect [-out FILE] REPORT.json ... OUTPUT-OF-GO-TEST-BENCH.txt ...\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "collect:", err)
		os.Exit(1)
	}
}

func run(out string, files []string) error {
	if len(files) == 0 {
		return errors.New("name the reports to collect")
	}
	var all []*report.Report
	for _, file := range files {
		r, err := read(file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, r)
	}
	body, err := json.MarshalIndent(map[string]any{"reports": all}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(body, '\n'), 0o600); err != nil {
		return err
	}
	missed := 0
	for _, r := range all {
		for _, f := range r.Figures {
			if f.Missed() {
				missed++
				fmt.Printf("MISSED  %.4g %s instead of %.4g  %s\n", f.Value, f.Unit, f.Target, f.What)
			}
		}
	}
	fmt.Printf("%d reports in %s; %d targets missed\n", len(all), out, missed)
	return nil
}

func read(file string) (*report.Report, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if strings.HasSuffix(file, ".json") {
		r := &report.Report{}
		return r, json.NewDecoder(in).Decode(r)
	}
	return ofGoTest(in)
}

// ofGoTest reads lines such as "BenchmarkX-2  100  12.5 ns/op  0 B/op". A benchmark that ran several times has several
// lines.
func ofGoTest(in io.Reader) (*report.Report, error) {
	r := report.New("Benchmarks of go test")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			r.Add(strings.TrimPrefix(fields[0], "Benchmark")+", "+fields[i+1], value, fields[i+1])
		}
	}
	if len(r.Figures) == 0 {
		return nil, errors.New("there is no benchmark in it")
	}
	return r, lines.Err()
}
