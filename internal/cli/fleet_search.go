package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// searchForwarder forwards requests of the fleet page to the search API, with the credentials of the kubeconfig.
type searchForwarder struct {
	hub   *cluster
	flags searchFlags

	mu     sync.Mutex
	client *searchClient // nil if the search API cannot be reached
	failed chan struct{} // closed if a request with client fails
}

const (
	searchRetry    = 15 * time.Second // after a failed connection
	searchPatience = 5 * time.Second  // for the first connection
)

// run connects until ctx ends. It calls tried after the first attempt.
func (s *searchForwarder) run(ctx context.Context, tried func()) {
	first := sync.OnceFunc(tried)
	defer first()
	for ctx.Err() == nil {
		_ = s.hub.withSearch(ctx, s.flags, func(c *searchClient) error { // without search, the page shows agents only
			if c.get(ctx, "/v1/counts", "", url.Values{}, new(json.RawMessage)) != nil {
				return nil
			}
			failed := make(chan struct{})
			s.set(c, failed)
			defer s.set(nil, nil)
			first()
			select {
			case <-ctx.Done():
			case <-failed:
			}
			return nil
		})
		first()
		if !backoff.Sleep(ctx, searchRetry) {
			return
		}
	}
}

func (s *searchForwarder) set(c *searchClient, failed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.failed = c, failed
}

// Available reports whether requests can be forwarded.
func (s *searchForwarder) Available() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// ServeHTTP forwards the path and the query of a request, and no header but Accept.
func (s *searchForwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	client, failed := s.client, s.failed
	s.mu.Unlock()
	if client == nil {
		writeError(w, http.StatusServiceUnavailable, "the search API of the principal cannot be reached: see `argocd-agentctl search`")
		return
	}
	base, err := url.Parse(client.base)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	proxy := &httputil.ReverseProxy{Transport: client.http.Transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header = http.Header{"Accept": p.In.Header["Accept"]}
			p.Out.Host = ""
			p.SetURL(base)
		},
		ModifyResponse: func(answer *http.Response) error {
			kept := http.Header{}
			for _, name := range []string{"Content-Type", "Retry-After"} {
				if value := answer.Header.Get(name); value != "" {
					kept.Set(name, value)
				}
			}
			answer.Header = kept
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			if r.Context().Err() == nil {
				s.disconnect(failed)
			}
			writeError(w, http.StatusBadGateway, "the search API of the principal does not answer")
		}}
	proxy.ServeHTTP(w, r)
}

// disconnect lets run connect again.
func (s *searchForwarder) disconnect(failed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == failed && failed != nil {
		close(failed)
		s.client, s.failed = nil, nil
	}
}

func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}
