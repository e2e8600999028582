package resource

import (
	"net/http"
	"net/url"
	"strings"
)

// Verbs of Kubernetes authorization. A request for a path that is not a resource has none.
const (
	verbGet              = "get"
	verbList             = "list"
	verbWatch            = "watch"
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
)

// Request describes a request by method, path and query.
type Request struct {
	Verb string // empty if it is not for a resource, such as discovery

	Group, Version  string
	Resource        string // plural and lower case, as in the path
	Subresource     string
	Rest            string // after the subresource, as in services/x/proxy/path
	Namespace, Name string

	// Selected is the name in the field selector of a list or watch, or "".
	Selected string
	// Subject is the subject in the field selector of a list of events.
	Subject Subject
	// DryRun means that the API server changes nothing.
	DryRun bool
}

// Subject is the object of events. Only Name is always set.
type Subject struct {
	Kind, Namespace, Name, UID string
	AnyNamespace               bool // the selector has no namespace
}

// parse parses a request. Its path must have passed checkPath.
func parse(r *http.Request, query url.Values) Request {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var q Request
	switch {
	case len(segments) > 2 && segments[0] == "api":
		q.Version, segments = segments[1], segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		q.Group, q.Version, segments = segments[1], segments[2], segments[3:]
	default:
		return Request{}
	}
	watched := false
	if len(segments) > 1 && segments[0] == "watch" { // deprecated form of a watch
		watched, segments = true, segments[1:]
	}
	q.parsePath(segments)
	q.Verb = verbOf(r.Method, q.Name != "", watched || isTrue(query, "watch"))
	if watched && q.Verb == verbGet { // also with a name
		q.Verb = verbWatch
	}
	q.selectors(query)
	q.DryRun = q.changesNothing(r, query)
	return q
}

// parsePath parses [namespaces/<namespace>/]<resource>[/<name>[/<subresource>[/<rest>]]].
func (q *Request) parsePath(segments []string) {
	if segments[0] == "namespaces" && len(segments) > 2 && segments[2] != "status" && segments[2] != "finalize" {
		q.Namespace, segments = segments[1], segments[2:]
	}
	q.Resource = segments[0]
	if len(segments) > 1 {
		q.Name = segments[1]
	}
	if len(segments) > 2 {
		q.Subresource = segments[2]
	}
	if len(segments) > 3 {
		q.Rest = strings.Join(segments[3:], "/")
	}
}

func verbOf(method string, named, watched bool) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watched && !named:
			return verbWatch
		case named:
			return verbGet
		}
		return verbList
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		if named {
			return verbDelete
		}
		return verbDeleteCollection
	}
	return strings.ToLower(method) // unreachable after checkRequest
}

// isTrue parses a boolean as API servers do: a present value is true unless it is "0" or "false".
func isTrue(query url.Values, name string) bool {
	values, present := query[name]
	return present && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// changesNothing reports whether the API server treats the request as a dry run. It does not for a delete with a body,
// whose options are in the body, nor for subresources with effects, such as exec, eviction or token.
func (q *Request) changesNothing(r *http.Request, query url.Values) bool {
	values := query["dryRun"]
	if len(values) == 0 {
		return false
	}
	for _, v := range values {
		if v != "All" {
			return false
		}
	}
	switch q.Verb {
	case verbCreate, verbUpdate, verbPatch:
		return q.Subresource == "" || q.Subresource == "status" || q.Subresource == "scale"
	case verbDelete:
		return q.Subresource == "" && hasNoBody(r)
	}
	return false
}

func hasNoBody(r *http.Request) bool {
	return r.ContentLength == 0 && (r.Body == nil || r.Body == http.NoBody)
}

// streams reports whether a response may take any time to begin and to end.
func (q *Request) streams(query url.Values) bool {
	switch {
	case q.Verb == verbWatch:
		return true
	case q.Subresource == "log":
		return isTrue(query, "follow")
	}
	return connects(q.Subresource)
}

// isBulk reports whether a response may be large or long.
func (q *Request) isBulk() bool {
	return q.Verb == verbList || q.Verb == verbWatch || q.Subresource == "log" || connects(q.Subresource)
}

// connects reports whether a subresource is a connection into a pod, service or node.
func connects(subresource string) bool {
	switch subresource {
	case "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// isEvents reports whether a request is for events, of either group.
func (q *Request) isEvents() bool {
	return q.Resource == "events" && (q.Group == "" || q.Group == "events.k8s.io")
}

// isDocument reports whether a path describes the API: discovery, OpenAPI, version.
func isDocument(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch segments[0] {
	case "version", "api":
		return len(segments) == 1 || len(segments) == 2 && segments[0] == "api"
	case "apis":
		return len(segments) <= 3
	case "openapi":
		return len(segments) > 1
	}
	return false
}
