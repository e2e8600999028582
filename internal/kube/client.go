package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Client is a client of one API server.
type Client struct {
	base   *url.URL
	http   *http.Client
	writes writeHealth
}

// NewClient returns a client for a kubeconfig or in-cluster configuration.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure connection to the API server: %w", err)
	}
	host := cfg.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	base, err := url.Parse(host)
	if err != nil {
		return nil, fmt.Errorf("parse address of the API server %q: %w", cfg.Host, err)
	}
	return &Client{base: base, http: hc}, nil
}

// urlOf returns the URL of a resource or of one object.
func (c *Client) urlOf(r kind.Resource, namespace, name string, query url.Values) string {
	parts := []string{c.base.Path, "api", r.Version}
	if r.Group != "" {
		parts = []string{c.base.Path, "apis", r.Group, r.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, r.Plural)
	if name != "" {
		parts = append(parts, name)
	}
	u := *c.base
	u.Path = path.Join(append([]string{"/"}, parts...)...)
	u.RawQuery = query.Encode()
	return u.String()
}

const mediaTypeJSON = "application/json"

// sendObject sends a request whose response is an object.
func (c *Client) sendObject(ctx context.Context, method, address, contentType string, body []byte) (*kind.Object, error) {
	b, err := c.send(ctx, method, address, mediaTypeJSON, contentType, body)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// send sends a request and returns the response body. A failure response is an *apiError.
func (c *Client) send(ctx context.Context, method, address, accept, contentType string, body []byte) (_ []byte, err error) {
	caller := ctx
	defer func() { c.writes.recordResult(caller, method, address, err) }()
	ctx, span := trace.StartChild(ctx, trace.KindClient, method)
	defer span.End()
	ctx, cancel := context.WithTimeoutCause(ctx, responseTimeout, errNoResponse)
	defer cancel()
	resp, err := c.start(ctx, method, address, accept, contentType, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read response of the API server: %w", err)
	}
	return b, nil
}

// responseTimeout bounds every request except a watch. The API server's own timeout is one minute.
const responseTimeout = 90 * time.Second

var errNoResponse = fmt.Errorf("no response within %v", responseTimeout)

func (c *Client) start(ctx context.Context, method, address, accept, contentType string, body []byte) (*http.Response, error) {
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, rd)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	span := trace.FromContext(ctx)
	span.SetString(trace.Method, method)
	span.Inject(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		span.Fail("no response")
		// Leave out the URL: it makes each message different.
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("connect to API server: %w", err)
	}
	span.SetInt(trace.StatusCode, resp.StatusCode)
	if resp.StatusCode >= 300 {
		span.Fail(http.StatusText(resp.StatusCode))
		defer resp.Body.Close()
		return nil, readError(resp, req.URL.Path)
	}
	return resp, nil
}

// Get returns one object, or nil if it does not exist.
func (c *Client) Get(ctx context.Context, ref kind.Ref) (*kind.Object, error) {
	o, err := c.sendObject(ctx, http.MethodGet, c.urlOf(ref.Resource, ref.Namespace, ref.Name, nil), "", nil)
	if IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// Revision returns the current resourceVersion of the store, not from a cache. It uses the first of the given resources
// that is served and permitted.
func (c *Client) Revision(ctx context.Context, namespace string, of ...kind.Resource) (string, error) {
	var refused error
	for _, r := range of {
		revision, err := c.revision(ctx, Watch{Resource: r, Namespace: namespace})
		switch {
		case err == nil:
			return revision, nil
		case !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusForbidden):
			return "", err
		case refused == nil:
			refused = err
		}
	}
	return "", refused
}

// revision is like Revision, with the permissions that the watch needs anyway.
func (c *Client) revision(ctx context.Context, w Watch) (string, error) {
	query := url.Values{"limit": {"1"}}
	w.setSelectors(query)
	b, err := c.send(ctx, http.MethodGet, c.urlOf(w.Resource, w.Namespace, "", query), w.accept(w.listKind()), "", nil)
	return rawjson.Text(b, "metadata", "resourceVersion"), err
}

// List returns the objects of a watch as of one revision, not from a cache. It reads them in pages.
func (c *Client) List(ctx context.Context, w Watch) ([]*kind.Object, error) {
	var objects []*kind.Object
	_, err := c.ListPages(ctx, w, func(page []*kind.Object) { objects = append(objects, page...) }, func() { objects = nil })
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// ListPages calls page with the objects of a watch as of one revision, up to 500 at a time. If all of them have to be read again,
// it calls restart first. It returns the revision.
func (c *Client) ListPages(ctx context.Context, w Watch, page func([]*kind.Object), restart func()) (revision string, err error) {
	return c.pages(ctx, w, func(p listPage) error { page(p.objects); return nil }, restart)
}

// listPage is a page of a list.
type listPage struct {
	objects  []*kind.Object
	revision string // of the whole list
	more     bool   // another page follows
}

// pages calls add with each page of the objects as of one revision, until it returns an error. If the pages have to be read
// from the beginning again, it calls restart.
func (c *Client) pages(ctx context.Context, w Watch, add func(listPage) error, restart func()) (revision string, err error) {
	query := url.Values{"limit": {"500"}}
	w.setSelectors(query)
	for {
		b, err := c.send(ctx, http.MethodGet, c.urlOf(w.Resource, w.Namespace, "", query), w.accept(w.listKind()), "", nil)
		if query.Has("continue") && isStatus(err, http.StatusGone) {
			// The continue token expired. Read without pages, because another attempt would not be faster.
			query.Del("continue")
			query.Del("limit")
			restart()
			continue
		}
		if err != nil {
			return "", err
		}
		var page struct {
			Kind     string
			Metadata struct{ ResourceVersion, Continue string }
			Items    []json.RawMessage
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return "", fmt.Errorf("list %s: %w", w.Resource.Plural, err)
		}
		if page.Kind != w.listKind() { // objects missing in a list count as deleted
			return "", fmt.Errorf("list %s: response has kind %.40q", w.Resource.Plural, page.Kind)
		}
		objects := make([]*kind.Object, 0, len(page.Items))
		for _, item := range page.Items {
			o, err := parseItem(item, w.Resource)
			if err != nil {
				return "", fmt.Errorf("list %s: %w", w.Resource.Plural, err)
			}
			objects = append(objects, o)
		}
		more := page.Metadata.Continue != ""
		if err := add(listPage{objects, page.Metadata.ResourceVersion, more}); err != nil {
			return "", err
		}
		if !more {
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// parse parses an object without its managedFields. An update without managedFields keeps the stored ones.
func parse(b []byte) (*kind.Object, error) {
	if rawjson.Get(b, "metadata", "managedFields") != nil {
		smaller, err := rawjson.Remove(b, "metadata", "managedFields")
		if err != nil {
			return nil, fmt.Errorf("parse object: %w", err)
		}
		b = smaller
	}
	return kind.Parse(b)
}

// parseItem parses an object of a list, where built-in kinds lack apiVersion and kind.
func parseItem(b []byte, r kind.Resource) (*kind.Object, error) {
	if rawjson.Get(b, "kind") == nil {
		apiVersion := r.Version
		if r.Group != "" {
			apiVersion = r.Group + "/" + r.Version
		}
		for member, value := range map[string]string{"apiVersion": apiVersion, "kind": r.Kind} {
			var err error
			if b, err = rawjson.Set(b, rawjson.Quote(value), member); err != nil {
				return nil, err
			}
		}
	}
	return parse(b)
}
