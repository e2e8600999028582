package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
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
	return nil
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
