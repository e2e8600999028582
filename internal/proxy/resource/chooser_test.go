package resource

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// counted counts the requests that a transport gets.
type counted struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func TestTransportSelector_BulkHasItsOwnConnection(t *testing.T) {
	server := fakeServer(t, answer)
	shared, own := &counted{RoundTripper: server.Common}, &counted{RoundTripper: server.Common}
	server.Common, server.Upgrades = shared, own
	s := newStage(t, server, options{})
	for path, alone := range map[string]bool{
		"/version":                                     false,
		"/api/v1/namespaces/a/pods/p":                  false,
		"/api/v1/namespaces/a/pods/p/status":           false,
		"/api/v1/namespaces/a/pods":                    true,
		"/api/v1/namespaces/a/pods?watch=true":         true,
		"/api/v1/namespaces/a/pods/p/log":              true,
		"/api/v1/namespaces/a/pods/p/log?follow=true":  true,
		"/api/v1/namespaces/a/services/s/proxy/a/page": true,
	} {
		before := [2]int64{shared.n.Load(), own.n.Load()}
		if res, body := s.ask(t, s.client, http.MethodGet, path, nil); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
		after := [2]int64{shared.n.Load(), own.n.Load()}
		if want := map[bool][2]int64{false: {1, 0}, true: {0, 1}}[alone]; after[0]-before[0] < want[0] || after[1]-before[1] != want[1] {
			t.Errorf("%s: %v requests became %v", path, before, after)
		}
	}
}
