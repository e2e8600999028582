package resource

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

// direct is a client of the API server without any proxy in between.
func (s *stage) direct() (*http.Client, string) {
	return &http.Client{Transport: s.agent.config.Server.Common}, s.agent.config.Server.URL.String()
}

func fetch(ctx context.Context, b testing.TB, client *http.Client, address string) int64 {
	b.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("%s, %v", response.Status, err)
	}
	return n
}

// measure reports the median and the 99th percentile of what one operation takes.
func measure(b *testing.B, operation func()) {
	b.Helper()
	b.ReportAllocs()
	var times []time.Duration
	for b.Loop() {
		begin := time.Now()
		operation()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkGet(b *testing.B) {
	s := newStage(b, fakeServer(b, answer), options{agent: func(c *AgentConfig) { c.Policy = Policy{} }})
	s.index.Set("shop", []Node{{Kind: "Pod", Namespace: "a", Name: "p"}})
	const path = "/api/v1/namespaces/a/pods/p"
	b.Run("direct", func(b *testing.B) {
		client, address := s.direct()
		measure(b, func() { fetch(b.Context(), b, client, address+path) })
	})
	b.Run("hub", func(b *testing.B) {
		measure(b, func() { fetch(b.Context(), b, s.client, "https://"+s.address+path) })
	})
	b.Run("hub, new connection each", func(b *testing.B) { // as argocd-server does
		transport, _ := s.client.Transport.(*http.Transport)
		measure(b, func() {
			fresh := transport.Clone()
			fetch(b.Context(), b, &http.Client{Transport: fresh}, "https://"+s.address+path)
			fresh.CloseIdleConnections()
		})
	})
}

func BenchmarkThroughput(b *testing.B) {
	const size = 32 << 20
	s := newStage(b, fakeServer(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, size) }), options{})
	const path = "/api/v1/namespaces/a/pods/p/log?follow=true"
	client, address := s.direct()
	b.Run("direct", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			fetch(b.Context(), b, client, address+path)
		}
	})
	b.Run("hub", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			fetch(b.Context(), b, s.client, "https://"+s.address+path)
		}
	})
}

// BenchmarkKeyStroke is the echo of a terminal while 100 others follow logs and one reads a large list.
func BenchmarkKeyStroke(b *testing.B) {
	s := newStage(b, fakeServer(b, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			_, _ = io.Copy(conn, buf)
			_ = conn.Close()
		case r.URL.Query().Get("follow") != "":
			for r.Context().Err() == nil { // 20 lines a second each
				_, _ = io.WriteString(w, "a logged line of the usual length of such lines\n")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		default:
			_, _ = io.CopyN(w, zeros{}, 50<<20)
		}
	}), options{})
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	read := func(path string) {
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+path, http.NoBody)
			if err != nil {
				return
			}
			if response, err := s.client.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
	}
	for range 100 {
		wait.Go(func() { read("/api/v1/namespaces/a/pods/p/log?follow=true") })
	}
	for b.Context().Err() == nil && s.hub.Active() < 100 {
		time.Sleep(time.Millisecond) // a benchmark, not a test
	}
	for name, list := range map[string]bool{"followers": false, "followers and a list": true} {
		b.Run(name, func(b *testing.B) {
			if list {
				wait.Go(func() { read("/api/v1/pods") })
			}
			conn, reader := s.terminal(b, "")
			defer conn.Close()
			measure(b, func() {
				_, _ = conn.Write([]byte("x"))
				if _, err := reader.ReadByte(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	cancel()
	wait.Wait()
}

func BenchmarkDecide(b *testing.B) {
	x := world()
	d := decider{policy: &Policy{}, apps: x, kindOf: kindForTest}
	r := httptest.NewRequest(http.MethodGet, web, http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		query, status := checkRequest(r)
		if status != nil {
			b.Fatal(status)
		}
		q := parse(r, query)
		if _, status := d.decide(r, &q); status != nil {
			b.Fatal(status)
		}
	}
}

// BenchmarkLab is against a real API server: one object, and a list of some megabytes.
func BenchmarkLab(b *testing.B) {
	cluster := lab.Get(b).Cluster("managed")
	server, err := APIServerFor(cluster.Admin())
	if err != nil {
		b.Fatal(err)
	}
	s := newStage(b, server, options{})
	client, address := s.direct()
	for _, test := range []struct{ name, path string }{
		{"get", "/api/v1/namespaces/kube-system"}, {"openapi", "/openapi/v2"},
	} {
		for _, way := range []struct {
			name    string
			client  *http.Client
			address string
		}{{"direct", client, address}, {"hub", s.client, "https://" + s.address}} {
			b.Run(test.name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(fetch(b.Context(), b, way.client, strings.TrimSuffix(way.address, "/")+test.path))
				measure(b, func() { fetch(b.Context(), b, way.client, strings.TrimSuffix(way.address, "/")+test.path) })
			})
		}
	}
}
