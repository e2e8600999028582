package resource

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	"golang.org/x/net/http/httpguts"
)

const (
	// aggregatedDiscovery is client-go's Accept header for discovery: aggregated, of either version, or the index.
	aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

	maxDocument  = 8 << 20 // bytes as sent
	maxDocuments = 1 << 30 // bytes of all cached documents. Equal documents of several agents share memory.
)

// cachedDocuments are the documents that argocd-server needs while an agent is disconnected, with their Accept headers.
var cachedDocuments = []struct{ path, accept string }{
	{"/version", "application/json, */*"}, {"/api", aggregatedDiscovery}, {"/apis", aggregatedDiscovery},
}

// cachedHeaders describe a document. Other headers describe the response.
var cachedHeaders = []string{"Content-Type", "Content-Encoding", "Etag", "Last-Modified", "Vary", "Cache-Control"}

// discoveryCache has the last discovery documents of all agents.
type discoveryCache struct {
	mu        sync.Mutex
	documents map[documentKey]document
	size      int // bytes of all documents
}

type documentKey struct{ agent, path string }

type document struct {
	header http.Header // only what describes the body
	body   unique.Handle[string]
}

// documentPath returns the path of a document that is cached, or "".
func documentPath(r *http.Request) string {
	query := r.URL.Query()
	query.Del("timeout") // does not change the response
	path := strings.TrimSuffix(r.URL.Path, "/")
	for _, d := range cachedDocuments {
		if d.path == path && len(query) == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return path
		}
	}
	return ""
}

func (c *discoveryCache) put(key documentKey, d document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := c.size + len(d.body.Value())
	if old, known := c.documents[key]; known {
		size -= len(old.body.Value())
	}
	if size <= maxDocuments {
		c.documents[key], c.size = d, size
	}
}

// forget drops all documents of an agent.
func (c *discoveryCache) forget(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, d := range c.documents {
		if key.agent == agent {
			delete(c.documents, key)
			c.size -= len(d.body.Value())
		}
	}
}

// find returns the document for a request if its type is one that the caller accepts.
func (c *discoveryCache) find(agent string, r *http.Request) (document, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, known := c.documents[documentKey{agent, documentPath(r)}]
	accept := strings.Join(r.Header.Values("Accept"), ",")
	known = known && slices.ContainsFunc(strings.Split(accept, ","), func(one string) bool {
		one = mediaType(one)
		return one == "" || one == "*/*" || one == mediaType(d.header.Get("Content-Type"))
	})
	return d, known
}

// mediaType normalizes a type. It keeps the parameters that distinguish discovery documents, which are all
// application/json.
func mediaType(value string) string {
	parts := strings.Split(strings.ToLower(value), ";")
	var parameters []string
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if name, _, _ := strings.Cut(p, "="); name == "g" || name == "v" || name == "as" {
			parameters = append(parameters, p)
		}
	}
	slices.Sort(parameters)
	return strings.Join(append([]string{strings.TrimSpace(parts[0])}, parameters...), ";")
}

// capture stores the document in a response. The index of groups is not stored, because it is useless without the
// documents of the groups.
func (c *discoveryCache) capture(agent string, res *http.Response) error {
	encoding, path := res.Header.Get("Content-Encoding"), documentPath(res.Request)
	isIndex := path != "/version" && !strings.Contains(mediaType(res.Header.Get("Content-Type")), "as=apigroupdiscoverylist")
	if res.StatusCode != http.StatusOK || res.Request.Method != http.MethodGet || encoding != "" && encoding != "gzip" || isIndex {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return err
	}
	if len(body) <= maxDocument {
		header := http.Header{}
		for _, name := range cachedHeaders {
			if values := res.Header.Values(name); len(values) > 0 {
				header[name] = slices.Clone(values)
			}
		}
		c.put(documentKey{agent, path}, document{header, unique.Make(string(body))})
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
	return nil
}

// serve responds with a cached document and a warning. It returns false if there is none.
func (c *discoveryCache) serve(w http.ResponseWriter, r *http.Request, agent, why string) bool {
	d, known := c.find(agent, r)
	if !known {
		return false
	}
	content, header := []byte(d.body.Value()), w.Header()
	for name, values := range d.header {
		header[name] = slices.Clone(values)
	}
	if header.Get("Content-Encoding") == "gzip" && !httpguts.HeaderValuesContainsToken(r.Header.Values("Accept-Encoding"), "gzip") {
		var err error
		if content, err = gunzip(content); err != nil {
			return false
		}
		header.Del("Content-Encoding")
	}
	header.Set("Warning", fmt.Sprintf(`299 argocd-agent %s`, strconv.QuoteToASCII(why+"; this is a cached response")))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return true
}

func gunzip(content []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, 8*maxDocument+1))
	if err == nil && len(plain) > 8*maxDocument {
		err = fmt.Errorf("a document is larger than %d bytes", 8*maxDocument)
	}
	return plain, err
}

// PrefetchDiscovery caches the discovery documents that argocd-server needs. Call it when an agent has connected. It
// fetches cached documents again, because the cluster may have been upgraded.
func (h *Hub) PrefetchDiscovery(ctx context.Context, agent string) error {
	var failed []error
	for _, document := range cachedDocuments {
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
	c := &hubRequest{agent: agent, begin: time.Now(), firstByteTimeout: h.config.FirstByte, unblock: func() {}}
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
	if err := h.discovery.capture(agent, response); err != nil {
		return true, err
	}
	_, err = io.Copy(io.Discard, response.Body) // so that the tunnel can be reused
	return true, err
}
