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

// aggregated is how client-go asks for discovery: everything in one document, of either version, or else the index.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// PrefetchDiscovery asks an agent for what argocd-server needs to know about its cluster, so that there is a copy even if nobody
// asks before the agent goes away. It is for the moment in which an agent has connected. What is known already is asked
// for again: the cluster may have been upgraded meanwhile.
func (h *Hub) PrefetchDiscovery(ctx context.Context, agent string) error {
	var failed []error
	for _, document := range []struct{ path, accept string }{
		{"/version", "application/json, */*"}, {"/api", aggregated}, {"/apis", aggregated},
	} {
		answered, err := h.learn(ctx, agent, document.path, document.accept)
		if err != nil {
			failed = append(failed, fmt.Errorf("learn %s of agent %s: %w", document.path, agent, err))
		}
		if !answered { // nor would it answer the next one
			break
		}
	}
	return errors.Join(failed...)
}

// learn asks for one document. It reports whether there was an answer at all.
func (h *Hub) learn(ctx context.Context, agent, path, accept string) (answered bool, err error) {
	c := &hubRequest{agent: agent, begin: time.Now(), document: true, patience: h.config.FirstByte, unblock: func() {}}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, c), h.config.FirstByte)
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
		return true, fmt.Errorf("the answer is %s", response.Status)
	}
	h.copies.capture(agent, response)
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return true, err
}
