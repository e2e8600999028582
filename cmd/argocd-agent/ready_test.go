package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestCheck_WaitsForAnswer(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	var out strings.Builder
	if err := run(t.Context(), []string{"check", server.URL}, nil, &out, &out); err != nil || out.String() != "ok\n" || requests.Load() != 2 {
		t.Errorf("%v, %q after %d requests", err, out.String(), requests.Load())
	}
}

func TestCheck_Fails(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"another code": {[]string{"check", server.URL, "--timeout", "1s"}, "404 Not Found"},
		"no server":    {[]string{"check", "http://127.0.0.1:1", "--timeout", "1s"}, "127.0.0.1:1"},
		"no URL":       {[]string{"check"}, "URL is missing"},
	} {
		var out strings.Builder
		if err := run(t.Context(), c.args, nil, &out, &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
