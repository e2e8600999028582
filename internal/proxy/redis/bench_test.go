package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const rounds = 5

// cpuTime is what a process has used, as the kernel counts it in hundredths of a second.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkPassThrough compares requests per second, as redis-benchmark sees them, with and without the Server.
func BenchmarkPassThrough(b *testing.B) {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		b.Skip("needs redis-benchmark")
	}
	port := freePort(b)
	hub := startRedis(b, "", "--port", port)
	server := New(Config{Hub: Endpoint{Address: "127.0.0.1:" + port}, Agents: nobody{}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()
	defer func() {
		cancel()
		<-ended
		hub.stop()
	}()
	_, proxy, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []struct{ clients, pipeline, size, requests int }{
		{50, 1, 3, 50_000}, {50, 16, 3, 500_000}, {50, 1, 20_000, 30_000}, {1, 1, 3, 10_000},
	} {
		for _, command := range []string{"get", "set"} {
			name := fmt.Sprintf("%s/clients=%d/pipeline=%d/bytes=%d", command, kind.clients, kind.pipeline, kind.size)
			b.Run(name, func(b *testing.B) {
				for range b.N {
					var rate, cpu [2]float64
					for range rounds { // the best of five: whoever else uses the machine slows down both
						for i, port := range []string{port, proxy} {
							before := cpuTime(b, hub.process.Process.Pid)
							if i == 1 {
								before += cpuTime(b, os.Getpid())
							}
							out, err := exec.CommandContext(ctx, program, "-p", port, "-t", command, "--csv",
								"-c", strconv.Itoa(kind.clients), "-P", strconv.Itoa(kind.pipeline), "-d", strconv.Itoa(kind.size),
								"-n", strconv.Itoa(kind.requests)).Output()
							if err != nil {
								b.Fatal(err)
							}
							lines := strings.Split(strings.TrimSpace(string(out)), "\n")
							fields := strings.Split(lines[len(lines)-1], ",")
							perSecond, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
							if err != nil {
								b.Fatal(err)
							}
							rate[i] = max(rate[i], perSecond)
							used := cpuTime(b, hub.process.Process.Pid) - before
							if i == 1 {
								used += cpuTime(b, os.Getpid())
							}
							cpu[i] += float64(used.Microseconds()) / float64(rounds*kind.requests)
						}
					}
					b.ReportMetric(rate[0], "direct/s")
					b.ReportMetric(rate[1], "proxy/s")
					b.ReportMetric(100*rate[1]/rate[0], "%")
					b.ReportMetric(cpu[0], "direct-cpu-µs/request")
					b.ReportMetric(cpu[1], "proxy-cpu-µs/request") // with that of Redis
				}
			})
		}
	}
}

// nobody has Applications.
type nobody struct{}

func (nobody) Resolve(string, string) (Target, bool) { return Target{}, false }

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// BenchmarkAgentKey compares a GET of a key of an agent's with one of the same size directly from its Redis.
func BenchmarkAgentKey(b *testing.B) {
	w := newWorld(b, nil)
	spoke := w.spokes["w1"]
	value := strings.Repeat("x", 20_000)
	spoke.do("SET", treeKey("cart"), value)
	spoke.do("SET", channelKey("cart"), value)
	endpoint := spoke.endpoint()
	conn, err := endpoint.connect(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	direct := &testClient{t: b, conn: conn, in: newReader(conn, testLimits)}
	defer direct.close()
	proxied := w.user()
	for _, kind := range []struct {
		name string
		c    *testClient
		key  string
	}{
		{"direct", direct, channelKey("cart")},
		{"asked", proxied, channelKey("shop_cart")},
		{"cached", proxied, treeKey("shop_cart")},
	} {
		b.Run(kind.name, func(b *testing.B) {
			times := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				if len(kind.c.raw("GET", kind.key)) != len(value) {
					b.Fatal("another value")
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}
