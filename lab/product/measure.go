package product

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU time in /proc on Linux.
const ticksPerSecond = 100

// CPU returns the CPU time of the process since its start.
func (p *Program) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Status().PID))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time: %w", err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the CPU time: %q", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// Metric returns the sum of the samples of a metric.
func (p *Program) Metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Metrics, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		sample, value, ok := strings.Cut(lines.Text(), " ")
		if family, _, _ := strings.Cut(sample, "{"); !ok || family != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += n
	}
	return sum, lines.Err()
}

func splitAddr(addr string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(addr); err != nil {
		return "", "", fmt.Errorf("address %q: %w", addr, err)
	}
	return host, port, nil
}
