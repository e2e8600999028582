package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"time"
)

// aggregatedDiscovery is client-go's Accept header for discovery: aggregated, of either version, or the index.
const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// PrefetchDiscovery caches the discovery documents that argocd-server needs. Call it when an agent has connected. It
// fetches cached documents again, because the cluster may have been upgraded.
func (h *Hub) PrefetchDiscovery(ctx context.Context, agent string) error {
	var failed []error
	for _, document := range []struct{ path, accept string }{
		{"/version", "application/json, */*"}, {"/api", aggregatedDiscovery}, {"/apis", aggregatedDiscovery},
	} {
		answered, err := h.fetchDocument(ctx, agent, document.path, document.accept)
		if err != nil {
			failed = append(failed, fmt.Errorf("fetch %s of agent %s: %w", document.path, agent, err))
		}
		if !answered { // the next would fail, too
			break
		}
	}
	return errors.Join(failed...)
}

// fetchDocument fetches one document. It reports whether the agent responded.
func (h *Hub) fetchDocument(ctx context.Context, agent, path, accept string) (answered bool, err error) {
	c := &hubRequest{agent: agent, begin: time.Now(), document: true, firstByteTimeout: h.config.FirstByte, unblock: func() {}}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, hubRequestKey{}, c), h.config.FirstByte)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", "gzip")
	h.rewrite(&httputil.ProxyRequest{In: request, Out: request})
	response, err := h.proxy.Transport.RoundTrip(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return true, fmt.Errorf("response is %s", response.Status)
	}
	h.discovery.capture(agent, response)
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return true, err
}
