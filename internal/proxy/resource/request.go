package resource

import (
	"net/http"
	"net/url"
	"strings"
)

// Verbs of the Kubernetes API, as its authorisation names them. A request that is about no resource has none.
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

// Request is what a request asks of an API server, told from its method, path and query.
type Request struct {
	Verb string // empty: it is about no resource, such as discovery

	Group, Version  string
	Resource        string // plural and lower case, as in the path
	Subresource     string
	Rest            string // what follows the subresource, for the likes of services/x/proxy/path
	Namespace, Name string

	// Selected is the name to which the field selector of a list or watch restricts it, if it does.
	Selected string
	// Subject is what the field selector of a list of events restricts it to, if it does.
	Subject Subject
	// DryRun tells that the API server will change nothing.
	DryRun bool
}

// Subject is the object that events are about. Of the fields, only Name is always known.
type Subject struct {
	Kind, Namespace, Name, UID string
	AnyNamespace               bool // the selector does not say which namespace
}

// parse tells what a request asks for. The path has to have passed checkPath.
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
	if len(segments) > 1 && segments[0] == "watch" { // the old way to ask for a watch, which API servers still know
		watched, segments = true, segments[1:]
	}
	q.place(segments)
	q.Verb = verbOf(r.Method, q.Name != "", watched || isTrue(query, "watch"))
	if watched && q.Verb == verbGet { // with a name the old way is still a watch
		q.Verb = verbWatch
	}
	q.selectors(query)
	q.DryRun = q.changesNothing(r, query)
	return q
}

// place reads [namespaces/<namespace>/]<resource>[/<name>[/<subresource>[/<rest>]]].
func (q *Request) place(segments []string) {
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
	return strings.ToLower(method) // checkRequest lets no other through
}

// isTrue reads a boolean as API servers do: whatever is present is true unless it says that it is not.
func isTrue(query url.Values, name string) bool {
	values, present := query[name]
	return present && len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// changesNothing tells that the API server is sure to take the request for a dry run. Deletes with a body are not among
// those: the API server then looks for the options in there and ignores the query. Nor are subresources that act, such
// as exec, eviction or token.
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

// streams tells that an answer may take any time to begin, and then to end.
func (q *Request) streams(query url.Values) bool {
	switch {
	case q.Verb == verbWatch:
		return true
	case q.Subresource == "log":
		return isTrue(query, "follow")
	}
	return connects(q.Subresource)
}

// isBulk tells that an answer may be large, or come bit by bit.
func (q *Request) isBulk() bool {
	return q.Verb == verbList || q.Verb == verbWatch || q.Subresource == "log" || connects(q.Subresource)
}

// connects lists the subresources that are connections into a pod, service or node.
func connects(subresource string) bool {
	switch subresource {
	case "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// isEvents tells that a request is for events, of the core or of their own group.
func (q *Request) isEvents() bool {
	return q.Resource == "events" && (q.Group == "" || q.Group == "events.k8s.io")
}

// isDocument tells that a path is one of those that describe an API server rather than what is in it: discovery,
// OpenAPI, version. All of them are of interest before anything else can be asked.
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
