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
)

// passThrough compares operations per second of what is the hub's own.
func (b *bench) passThrough(ctx context.Context) error {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return fmt.Errorf("find redis-benchmark (apt-get install redis-tools): %w", err)
	}
	hub := b.lab.Hub()
	for _, kind := range []struct {
		command           string
		pipeline, size, n int
	}{
		{"get", 1, 3, 60_000}, {"set", 1, 3, 60_000}, {"get", 16, 3, 400_000}, {"get", 1, 20_000, 40_000},
	} {
		if out, err := exec.CommandContext(ctx, program, "-p", portOf(hub.Redis.Address), "-a", hub.Redis.Password, "-t", "set", "-n", "1",
			"-d", strconv.Itoa(kind.size)).CombinedOutput(); err != nil { // else there is nothing to get
			return fmt.Errorf("redis-benchmark: %w: %s", err, out)
		}
		var best [2]float64
		for range 5 { // the best of five: whoever else uses the machine slows down both
			for i, address := range []string{hub.Redis.Address, b.product.Live.Redis} {
				out, err := exec.CommandContext(ctx, program, "-p", portOf(address), "-a", hub.Redis.Password, "-t", kind.command, "--csv", "-c", "50",
					"-P", strconv.Itoa(kind.pipeline), "-d", strconv.Itoa(kind.size), "-n", strconv.Itoa(kind.n)).Output()
				if err != nil {
					return fmt.Errorf("redis-benchmark: %w", err)
				}
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				fields := strings.Split(lines[len(lines)-1], ",")
				if len(fields) < 2 {
					return fmt.Errorf("redis-benchmark says %q", out)
				}
				rate, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
				if err != nil {
					return fmt.Errorf("redis-benchmark says %q: %w", out, err)
				}
				best[i] = max(best[i], rate)
			}
		}
		what := fmt.Sprintf("Redis %s, 50 clients, pipelines of %d, %d bytes", kind.command, kind.pipeline, kind.size)
		b.Add(what+", directly", best[0], "/s")
		b.Add(what+", through the proxy", best[1], "/s")
		b.AtLeast(80, what+", of what it is directly", 100*best[1]/best[0], "%")
	}
	return nil
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// agentKeys compares reading a key of an agent's with reading it from the agent's Redis itself.
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
		{"managed-resources", "asked for each time"}, {"resources-tree", "kept on the hub"},
	} {
		local, seen := "app|"+key.kind+"|shop|1.8.3", "app|"+key.kind+"|w1_shop|1.8.3"
		if _, err := spoke.do("SET", local, value); err != nil {
			return err
		}
		direct, through, err := byTurns(2000, spoke.reads(local, len(value)), hub.reads(seen, len(value)))
		if err != nil {
			return err
		}
		b.Add("agent's key of 20 kB, "+key.what+", directly, p50", direct.at(0.5), "ms")
		b.Add("agent's key of 20 kB, "+key.what+", through the hub, p99", through.at(0.99), "ms")
		b.AtMost(2, "agent's key of 20 kB, "+key.what+", more than directly, p50", through.at(0.5)-direct.at(0.5), "ms")
	}
	return nil
}

// redisClient asks one thing at a time.
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

// do returns how long the value is that comes back; 0: it is none.
func (c *redisClient) do(words ...string) (int, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c.conn, request.String()); err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
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

// reads returns what reads a key of that size.
func (c *redisClient) reads(key string, size int) func() error {
	return func() error {
		got, err := c.do("GET", key)
		if err == nil && got != size {
			err = fmt.Errorf("%s has %d bytes, not %d", key, got, size)
		}
		return err
	}
}
