package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/lab/product"
)

// apiRequests counts the requests that the hub's API server has handled.
type apiRequests struct {
	writes float64 // of Agents, Applications, Leases and Secrets
	lists  float64 // of Applications
}

// countRequests reads the metrics of the hub's API server.
func (b *bench) countRequests(ctx context.Context) (c apiRequests, err error) {
	config := rest.CopyConfig(b.lab.Hub().Admin())
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return c, err
	}
	response, err := client.Do(request)
	if err != nil {
		return c, fmt.Errorf("read metrics of the API server: %w", err)
	}
	defer response.Body.Close()
	return parseRequests(response.Body)
}

// parseRequests sums up apiserver_request_total.
func parseRequests(r io.Reader) (c apiRequests, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("read metrics of the API server: %w", err)
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(labels, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		switch resource, verb := label("resource"), label("verb"); {
		case resource == "applications" && verb == "LIST":
			c.lists += n
		case resource != "applications" && resource != "agents" && resource != "leases" && resource != "secrets":
		case verb == "POST" || verb == "PUT" || verb == "PATCH" || verb == "APPLY" || verb == "DELETE":
			c.writes += n
		}
	}
	return c, lines.Err()
}

// resting measures what replicas at rest cost: CPU of each, and requests to the API server.
func (b *bench) resting(ctx context.Context, all []*product.Program, span time.Duration) error {
	cpu := func() (sum time.Duration, err error) {
		for _, p := range all {
			one, err := p.CPU()
			if err != nil {
				return 0, err
			}
			sum += one
		}
		return sum, nil
	}
	before, err := cpu()
	if err != nil {
		return err
	}
	requests, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	pause(ctx, span)
	took := time.Since(began)
	after, err := cpu()
	if err != nil {
		return err
	}
	now, err := b.countRequests(ctx)
	if err != nil {
		return err
	}
	b.Add("principals: CPU at rest, mean of the replicas", 100*float64(after-before)/float64(took)/float64(len(all)), "% of a core")
	b.Add("principals: writes at rest at the API server", (now.writes-requests.writes)/took.Minutes()/float64(b.agents), "/agent/min")
	return nil
}
