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

// rounds is odd, so that there is a median.
const rounds = 5

// cpuTime returns the CPU time of a process, in units of 10 ms.
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

// BenchmarkPassThrough compares the requests per second of redis-benchmark with and without the Server, by turns. It
// reports the median of five runs. Client, Server and Redis share the cores, so it also reports the CPU time of each.
func BenchmarkPassThrough(b *testing.B) {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		b.Skip("needs redis-benchmark")
	}
	port := freePort(b)
	hub := startRedis(b, "", "--port", port)
	server := New(Config{Hub: Endpoint{Address: "127.0.0.1:" + port}, Agents: noAgents{}})
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
		hub.Stop()
	}()
	_, proxy, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	load := func(port, command string, clients, pipeline, size, requests int) (perSecond float64, used time.Duration) {
		run := exec.CommandContext(ctx, program, "-p", port, "-t", command, "--csv", "-c", strconv.Itoa(clients),
			"-P", strconv.Itoa(pipeline), "-d", strconv.Itoa(size), "-n", strconv.Itoa(requests))
		out, err := run.Output()
		if err != nil {
			b.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fields := strings.Split(lines[len(lines)-1], ",")
		if perSecond, err = strconv.ParseFloat(strings.Trim(fields[1], `"`), 64); err != nil {
			b.Fatal(err)
		}
		return perSecond, run.ProcessState.SystemTime() + run.ProcessState.UserTime()
	}
	for _, kind := range []struct{ clients, pipeline, size, requests int }{
		{50, 1, 3, 100_000}, {50, 16, 3, 1_000_000}, {50, 1, 20_000, 80_000}, {1, 1, 3, 20_000},
	} {
		for _, command := range []string{"get", "set"} {
			name := fmt.Sprintf("%s/clients=%d/pipeline=%d/bytes=%d", command, kind.clients, kind.pipeline, kind.size)
			b.Run(name, func(b *testing.B) {
				for range b.N {
					load(port, "set", 1, 1, kind.size, 1) // GET needs a value
					var rate [2][]float64
					var cpu [2][3]float64 // client, proxy, Redis
					for range rounds {
						for i, port := range []string{port, proxy} {
							before := [2]time.Duration{cpuTime(b, os.Getpid()), cpuTime(b, hub.Process().Pid)}
							perSecond, client := load(port, command, kind.clients, kind.pipeline, kind.size, kind.requests)
							after := [2]time.Duration{cpuTime(b, os.Getpid()), cpuTime(b, hub.Process().Pid)}
							rate[i] = append(rate[i], perSecond)
							for j, used := range []time.Duration{client, after[0] - before[0], after[1] - before[1]} {
								cpu[i][j] += float64(used.Microseconds()) / float64(rounds*kind.requests)
							}
						}
					}
					slices.Sort(rate[0])
					slices.Sort(rate[1])
					b.ReportMetric(rate[0][rounds/2], "direct/s")
					b.ReportMetric(rate[1][rounds/2], "proxy/s")
					b.ReportMetric(100*rate[1][rounds/2]/rate[0][rounds/2], "%")
					for i, way := range []string{"direct", "proxy"} {
						for j, who := range []string{"client", "proxy", "redis"} {
							if i == 1 || j != 1 {
								b.ReportMetric(cpu[i][j], way+"-cpu-of-"+who+"-µs")
							}
						}
					}
				}
			})
		}
	}
}

// noAgents resolves no Application.
type noAgents struct{}

func (noAgents) Resolve(string, string) (Target, bool) { return Target{}, false }

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

// BenchmarkAgentKey compares GET of an agent's key through the Server with GET at the agent's Redis.
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
	direct := &testClient{t: b, conn: conn, in: newReplyReader(conn, testLimits)}
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
					b.Fatal("unexpected value")
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}
