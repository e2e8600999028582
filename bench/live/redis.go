package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

// passThrough compares operations per second on keys of the hub, alternately; the median of five runs each. Client,
// proxy and Redis share the cores of the machine, so the CPU time of the proxy is reported too.
func (b *bench) passThrough(ctx context.Context) error {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return fmt.Errorf("find redis-benchmark (apt-get install redis-tools): %w", err)
	}
	hub := b.lab.Hub().Redis
	for _, kind := range []load{
		{"get", 1, 3, 100_000}, {"set", 1, 3, 100_000}, {"get", 16, 3, 800_000}, {"set", 16, 3, 800_000},
		{"get", 1, 20_000, 60_000}, {"set", 1, 20_000, 60_000},
	} {
		one := load{"set", 1, kind.size, 1}
		if _, err := one.run(ctx, program, hub.Address, hub.Password); err != nil { // create the keys for the get commands
			return err
		}
		var rates [2][]float64
		var used time.Duration
		for range 5 {
			for i, address := range []string{hub.Address, b.product.Live.Redis} {
				before, err := b.product.Principal.CPU()
				if err != nil {
					return err
				}
				rate, err := kind.run(ctx, program, address, hub.Password)
				if err != nil {
					return err
				}
				rates[i] = append(rates[i], rate)
				after, err := b.product.Principal.CPU()
				if err != nil {
					return err
				}
				if i == 1 {
					used += after - before
				}
			}
		}
		direct, through := report.Median(rates[0]), report.Median(rates[1])
		what := fmt.Sprintf("Redis %s, 50 clients, pipelines of %d, %d bytes", kind.command, kind.pipeline, kind.size)
		b.Add(what+", direct", direct, "/s")
		b.Add(what+", through the proxy", through, "/s")
		b.AtLeast(50, what+", share of direct", 100*through/direct, "%")
		b.Add(what+", principal's CPU per request", float64(used.Microseconds())/float64(5*kind.count), "µs")
	}
	return b.oneClient(ctx)
}

// oneClient compares the latency of a client that sends one request at a time.
func (b *bench) oneClient(ctx context.Context) error {
	password := b.lab.Hub().Redis.Password
	direct, err := dialRedis(ctx, b.lab.Hub().Redis.Address, password)
	if err != nil {
		return err
	}
	defer direct.conn.Close()
	proxy, err := dialRedis(ctx, b.product.Live.Redis, password)
	if err != nil {
		return err
	}
	defer proxy.conn.Close()
	const key, size = "bench|one-client", 1000
	if _, err := direct.do("SET", key, strings.Repeat("x", size)); err != nil {
		return err
	}
	without, with, err := interleave(5000, direct.reads(key, size), proxy.reads(key, size))
	if err != nil {
		return err
	}
	b.Add("Redis get, 1 client, 1 kB, direct, p50", without.at(0.5), "ms")
	b.Add("Redis get, 1 client, 1 kB, through the proxy, p50", with.at(0.5), "ms")
	b.AtMost(0.2, "Redis get, 1 client, 1 kB, added latency, p50", with.at(0.5)-without.at(0.5), "ms")
	return nil
}

// load is one run of redis-benchmark with 50 clients.
type load struct {
	command               string
	pipeline, size, count int
}

// run returns the number of requests per second.
func (l load) run(ctx context.Context, program, address, password string) (float64, error) {
	out, err := exec.CommandContext(ctx, program, "-p", portOf(address), "-a", password, "-t", l.command, "--csv", "-c", "50",
		"-P", strconv.Itoa(l.pipeline), "-d", strconv.Itoa(l.size), "-n", strconv.Itoa(l.count)).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], ",")
	if len(fields) < 2 {
		return 0, fmt.Errorf("redis-benchmark says %q", out)
	}
	rate, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark says %q: %w", out, err)
	}
	return rate, nil
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// agentKeys compares reading a key of an agent through the hub with reading it from the agent's Redis.
func (b *bench) agentKeys(ctx context.Context) error {
	spoke, err := dialRedis(ctx, b.spoke.Redis.Address, b.spoke.Redis.Password)
	if err != nil {
		return err
	}
	defer spoke.conn.Close()
	hub, err := dialRedis(ctx, b.product.Live.Redis, b.lab.Hub().Redis.Password)
	if err != nil {
		return err
	}
	defer hub.conn.Close()
	value := strings.Repeat("x", 20_000)
	for _, key := range []struct{ kind, what string }{
		{"managed-resources", "not cached"}, {"resources-tree", "cached on the hub"},
	} {
		local, seen := "app|"+key.kind+"|shop|1.8.3", "app|"+key.kind+"|w1_shop|1.8.3"
		if _, err := spoke.do("SET", local, value); err != nil {
			return err
		}
		direct, through, err := interleave(2000, spoke.reads(local, len(value)), hub.reads(seen, len(value)))
		if err != nil {
			return err
		}
		b.Add("agent's key of 20 kB, "+key.what+", direct, p50", direct.at(0.5), "ms")
		b.Add("agent's key of 20 kB, "+key.what+", through the hub, p99", through.at(0.99), "ms")
		b.AtMost(2, "agent's key of 20 kB, "+key.what+", added latency, p50", through.at(0.5)-direct.at(0.5), "ms")
	}
	return nil
}

// redisClient sends one request at a time.
type redisClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialRedis(ctx context.Context, address, password string) (*redisClient, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &redisClient{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	_, err = c.do("AUTH", password)
	return c, err
}

// do returns the length of the returned value. If there is none, 0.
func (c *redisClient) do(words ...string) (int, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c.conn, request.String()); err != nil {
		return 0, fmt.Errorf("query Redis: %w", err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("query Redis: %w", err)
	}
	if line[0] == '-' {
		return 0, fmt.Errorf("redis says %s", line)
	}
	if line[0] != '$' {
		return 0, nil
	}
	size, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || size < 0 {
		return 0, err
	}
	_, err = c.in.Discard(size + 2)
	return size, err
}

// reads returns a function that reads a key of the given size.
func (c *redisClient) reads(key string, size int) func() error {
	return func() error {
		got, err := c.do("GET", key)
		if err == nil && got != size {
			err = fmt.Errorf("%s has %d bytes, not %d", key, got, size)
		}
		return err
	}
}
