package memcluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RoundTrip returns the response of the API server of the cluster. It implements http.RoundTripper.
func (c *Cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	k, err := parsePath(r.URL.Path)
	if err != nil {
		return answer(r, nil, err), nil
	}
	var body map[string]any
	if r.Body != nil {
		defer r.Body.Close()
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
			return answer(r, nil, refuse(400, "BadRequest", "%v", err)), nil
		}
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && query.Get("watch") != "":
		return c.watch(r, k)
	case r.Method == http.MethodGet && k.name == "":
		return answer(r, c.list(k, listKind(r, k), filter(query.Get("labelSelector"), query.Get("fieldSelector"))), nil), nil
	}
	var o *object
	switch r.Method {
	case http.MethodGet:
		o, err = c.get(k)
	case http.MethodPost:
		o, err = c.create(k.resource, k.namespace, body)
	case http.MethodPut:
		o, err = c.update(k, body)
	case http.MethodPatch:
		o, err = c.patch(k, body)
	case http.MethodDelete:
		preconditions, _ := body["preconditions"].(map[string]any)
		o, err = c.delete(k, preconditions)
	default:
		err = refuse(405, "MethodNotAllowed", "%s is not served here", r.Method)
	}
	if err != nil {
		return answer(r, nil, err), nil
	}
	return answer(r, o.json, nil), nil
}

func (c *Cluster) get(k key) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.objects[k]; o != nil {
		return o, nil
	}
	return nil, notFound(k)
}

// listKind returns the kind of a list, as the API server does.
func listKind(r *http.Request, k key) string {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return "PartialObjectMetadataList"
	}
	return kinds[path.Base(k.resource)] + "List"
}

// kinds has the kinds of the resources that the product lists.
var kinds = map[string]string{
	"applications": "Application", "appprojects": "AppProject", "secrets": "Secret", "configmaps": "ConfigMap", "namespaces": "Namespace",
}

func (c *Cluster) list(k key, listKind string, wanted func(*object) bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*object
	for _, o := range c.objects {
		if o.resource == k.resource && (k.namespace == "" || k.namespace == o.namespace) && wanted(o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *object) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`, listKind, c.revision)
	for i, o := range found {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(o.json)
	}
	out.WriteString("]}")
	return out.Bytes()
}

// parsePath parses a path: [namespaces/NS/]RESOURCE[/NAME] below api/v1 or apis/GROUP/VERSION.
func parsePath(address string) (key, error) {
	parts := strings.Split(strings.Trim(address, "/"), "/")
	root := 2
	if parts[0] == "apis" {
		root = 3
	}
	if len(parts) <= root {
		return key{}, refuse(404, "NotFound", "%s is not served here", address)
	}
	var k key
	base, rest := strings.Join(parts[:root], "/"), parts[root:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		k.namespace, rest = rest[1], rest[2:]
	}
	k.resource = base + "/" + rest[0]
	if len(rest) > 1 {
		k.name = rest[1]
	}
	if len(rest) > 2 {
		return key{}, refuse(404, "NotFound", "%s is not served here", address)
	}
	return k, nil
}

// filter parses the selectors that the product uses: "metadata.name=x", "key", and "key in (a,b)".
func filter(labels, fields string) func(*object) bool {
	name, _ := strings.CutPrefix(fields, "metadata.name=")
	label, rest, _ := strings.Cut(labels, " in ")
	values := strings.Split(strings.Trim(rest, "()"), ",")
	return func(o *object) bool {
		if name != "" && o.name != name {
			return false
		}
		if label == "" {
			return true
		}
		all, _ := metadata(o.fields)["labels"].(map[string]any)
		value, ok := all[label].(string)
		return ok && (rest == "" || slices.Contains(values, value))
	}
}

// answer returns a response for a body or a failure.
func answer(r *http.Request, body []byte, err error) *http.Response {
	code := http.StatusOK
	if err != nil {
		f := &failure{code: 500, reason: "InternalError", message: err.Error()}
		errors.As(err, &f)
		code = f.code
		body, _ = json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": f.code, "reason": f.reason, "message": f.message, "details": f.details})
	}
	return response(r, code, io.NopCloser(bytes.NewReader(body)))
}

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}, Body: body, Request: r, ContentLength: -1}
}
