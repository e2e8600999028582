package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

// objects compares reading one object.
func (b *bench) objects(ctx context.Context) error {
	const path = "/api/v1/namespaces/" + namespace + "/configmaps/one"
	read := func(w *accessPath) func() error {
		return func() error {
			_, err := w.get(ctx, path)
			return err
		}
	}
	direct, hub, err := interleave(2000, read(b.direct), read(b.hub))
	if err != nil {
		return err
	}
	b.Add("GET of one object, direct, p50", direct.at(0.5), "ms")
	b.Add("GET of one object, direct, p99", direct.at(0.99), "ms")
	b.Add("GET of one object, through the hub, p50", hub.at(0.5), "ms")
	b.Add("GET of one object, through the hub, p99", hub.at(0.99), "ms")
	b.AtMost(2, "GET of one object, added latency, p50", hub.at(0.5)-direct.at(0.5), "ms")
	b.AtMost(5, "GET of one object, added latency, p99", hub.at(0.99)-direct.at(0.99), "ms")

	// argocd-server opens a new connection for nearly every request.
	fresh := func(w *accessPath) func() error {
		return func() error {
			defer w.client.CloseIdleConnections()
			_, err := w.get(ctx, path)
			return err
		}
	}
	if direct, hub, err = interleave(200, fresh(b.direct), fresh(b.hub)); err != nil {
		return err
	}
	b.Add("GET with a new connection, direct, p50", direct.at(0.5), "ms")
	b.Add("GET with a new connection, through the hub, p50", hub.at(0.5), "ms")
	return b.callers(read)
}

// callers compares the throughput of several callers at the same time; the median of five runs each.
func (b *bench) callers(read func(*accessPath) func() error) error {
	const callers, requests, runs = 20, 2000, 5
	paths := []*accessPath{b.direct, b.hub}
	var rates [2][]float64
	var principal, agent time.Duration
	for run := range runs + 1 { // the first one is warm-up
		for i, w := range paths {
			before, err := cpuTimes(b.product.Principal, b.agent)
			if err != nil {
				return err
			}
			rate, err := throughput(callers, requests, read(w))
			if err != nil {
				return err
			}
			after, err := cpuTimes(b.product.Principal, b.agent)
			if err != nil {
				return err
			}
			if run == 0 {
				continue
			}
			if rates[i] = append(rates[i], rate); w == b.hub {
				principal += after[0] - before[0]
				agent += after[1] - before[1]
			}
		}
	}
	direct, through := report.Median(rates[0]), report.Median(rates[1])
	what := fmt.Sprintf("GET of one object, %d callers", callers)
	b.Add(what+", direct", direct, "/s")
	b.Add(what+", through the hub", through, "/s")
	b.AtLeast(60, what+", share of direct", 100*through/direct, "%")
	b.Add(what+", principal's CPU per request", float64(principal.Microseconds())/(runs*requests), "µs")
	b.Add(what+", agent's CPU per request", float64(agent.Microseconds())/(runs*requests), "µs")
	return nil
}

// cpuTimes returns the CPU time of programs.
func cpuTimes(programs ...interface{ CPU() (time.Duration, error) }) (times []time.Duration, err error) {
	for _, p := range programs {
		used, err := p.CPU()
		if err != nil {
			return nil, err
		}
		times = append(times, used)
	}
	return times, nil
}

// throughput returns the requests per second of several callers.
func throughput(callers, requests int, request func() error) (float64, error) {
	var all errgroup.Group
	began := time.Now()
	for range callers {
		all.Go(func() error {
			for range requests / callers {
				if err := request(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return float64(requests) / time.Since(began).Seconds(), err
}

// logs compares the throughput of a long log.
func (b *bench) logs(ctx context.Context) error {
	log, err := os.OpenFile(b.spoke.PodLog, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the pod log: %w", err)
	}
	line := fmt.Sprintf("%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), strings.Repeat("a line of a log ", 12))
	_, err = log.WriteString(strings.Repeat(line, 64<<20/len(line)))
	if closed := log.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write the pod log: %w", err)
	}
	var best [2]float64
	for range 3 { // best of three, because other load on the machine affects both
		for i, w := range []*accessPath{b.direct, b.hub} {
			begin := time.Now()
			size, err := w.get(ctx, b.logPath(""))
			if err != nil {
				return err
			}
			best[i] = max(best[i], float64(size)/1e6/time.Since(begin).Seconds())
		}
	}
	b.Add("log of 64 MB, direct", best[0], "MB/s")
	b.Add("log of 64 MB, through the hub", best[1], "MB/s")
	b.AtLeast(50, "log of 64 MB, share of direct", 100*best[1]/best[0], "%")
	return nil
}

func (b *bench) logPath(query string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + b.pod + "/log" + query
}
