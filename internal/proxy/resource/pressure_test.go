package resource

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestProxy_SlowReaderStallsOnlyItself(t *testing.T) {
	var written atomic.Int64
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/large") {
			answer(w, r)
			return
		}
		buffer := make([]byte, 64<<10)
		for {
			n, err := w.Write(buffer)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}), options{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/api/v1/namespaces/a/pods/large", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	// No one reads it. Others, on the same connection, are served all the same, and what waits is bounded.
	for range 50 {
		if response, _ := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil); response.StatusCode != http.StatusOK {
			t.Fatalf("another reader: %s", response.Status)
		}
	}
	if n := written.Load(); n > 64<<20 {
		t.Errorf("%d bytes are buffered for a caller that does not read", n)
	}
}

func TestProxy_EndlessBodyEnds(t *testing.T) {
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		fullDuplex(w)
		_, _ = io.CopyN(io.Discard, r.Body, 3<<20)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too large","code":413}`)
	}), options{})
	response, body := s.ask(t, s.client, http.MethodPost, "/api/v1/namespaces/a/pods", zeros{})
	// A caller that is still writing may see the connection end before the answer that came ahead of that.
	if status := statusOf(t, response, body); status.Code != http.StatusRequestEntityTooLarge &&
		(status.Code != http.StatusBadGateway || !strings.Contains(status.Message, "connection to agent w1 failed")) {
		t.Errorf("got %s", body)
	}
	if s.hub.Active() > 1 {
		t.Errorf("%d requests are still under way", s.hub.Active())
	}
}

func TestProxy_StalledBodyTimesOut(t *testing.T) {
	arrived := make(chan error, 1)
	s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		arrived <- err
	}), options{hub: func(c *HubConfig) { c.FirstByte = soon / 100 }})
	reader, writer := io.Pipe()
	defer writer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address+"/api/v1/namespaces/a/pods", reader)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = writer.Write([]byte("half of it")) }()
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("got %s", response.Status)
	}
	if err := await(t, "end at the far end", arrived); err == nil {
		t.Error("the API server took half of it for the whole")
	}
}
