package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// accessPath is a way for a client to reach the spoke's API server.
type accessPath struct {
	name       string
	address    string
	client     *http.Client
	kubeconfig string
}

// openPaths returns both access paths with the same type of client.
func (b *bench) openPaths() error {
	through, err := b.product.Kubeconfig("w1")
	if err != nil {
		return err
	}
	for name, file := range map[string]string{"directly": b.spoke.Kubeconfig, "through the hub": through} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return fmt.Errorf("read a kubeconfig: %w", err)
		}
		config.DisableCompression = true // measure the real size of the list
		transport, err := rest.TransportFor(config)
		if err != nil {
			return err
		}
		w := &accessPath{name: name, address: config.Host, client: &http.Client{Transport: transport}, kubeconfig: file}
		if name == "directly" {
			b.direct = w
		} else {
			b.hub = w
		}
	}
	return nil
}

// get reads a response to its end and returns its size.
func (w *accessPath) get(ctx context.Context, path string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.address+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", path, w.name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return 0, fmt.Errorf("%s %s: %s: %s", path, w.name, response.Status, text)
	}
	return io.Copy(io.Discard, response.Body)
}

// times are sorted durations.
type times []time.Duration

// at returns a quantile in milliseconds: 0.5 is the median.
func (t times) at(part float64) float64 {
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[min(len(sorted)-1, int(float64(len(sorted))*part))].Microseconds()) / 1000
}

// interleave measures two access paths alternately.
func interleave(count int, first, second func() error) (one, two times, err error) {
	for i := range count + count/10 {
		for way, do := range []func() error{first, second} {
			begin := time.Now()
			if err := do(); err != nil {
				return nil, nil, err
			}
			switch took := time.Since(begin); {
			case i < count/10: // warm-up
			case way == 0:
				one = append(one, took)
			default:
				two = append(two, took)
			}
		}
	}
	return one, two, nil
}

// until polls a condition.
func until(ctx context.Context, what string, check func() error) error {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
