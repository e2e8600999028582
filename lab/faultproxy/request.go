package faultproxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Request is the part of an API request that rules and counters use.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Verb is the Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection; connect for exec,
	// attach, port-forward and proxy; dryrun for a write with dryRun set. For other paths (/version) it is the method
	// in lower case.
	Verb string
	// Path is the path of the URL, without the query.
	Path string
	// The parts of a resource path. Empty if they do not apply.
	Group, Namespace, Resource, Name, Subresource string
}

// WriteVerbs lists the verbs that change something.
var WriteVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// Match selects requests. The zero Match selects all.
type Match struct {
	// Verbs are Kubernetes verbs (watch) or HTTP methods (PUT), see Request.
	Verbs []string
	// Path must match a part of the URL path.
	Path *regexp.Regexp
}

func (m Match) matches(r Request) bool {
	if len(m.Verbs) > 0 && !slices.Contains(m.Verbs, r.Verb) && !slices.Contains(m.Verbs, r.Method) {
		return false
	}
	return m.Path == nil || m.Path.MatchString(r.Path)
}

func parseRequest(r *http.Request) Request {
	req := Request{Method: r.Method, Path: r.URL.Path}
	query := r.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	if legacy := req.parsePath(); legacy {
		watch = true
	}
	req.Verb = req.verb(watch, query.Get("dryRun") != "")
	return req
}

// parsePath sets the parts of a resource path and reports whether it is a deprecated watch path, with the verb in the
// path.
func (r *Request) parsePath() (watch bool) {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		r.Group, parts = parts[1], parts[3:]
	default:
		return false
	}
	if parts[0] == "watch" && len(parts) > 1 {
		watch, parts = true, parts[1:]
	}
	// Below a namespace there are resources, except for its own two subresources.
	if parts[0] == "namespaces" && len(parts) > 2 && (len(parts) > 3 || parts[2] != "status" && parts[2] != "finalize") {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = parts[2]
	}
	return watch
}

var connecting = []string{"exec", "attach", "portforward", "proxy"}

func (r *Request) verb(watch, dryRun bool) string {
	switch {
	case r.Resource == "":
		return strings.ToLower(r.Method)
	case slices.Contains(connecting, r.Subresource):
		return "connect"
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		switch {
		case watch:
			return "watch"
		case r.Name == "":
			return "list"
		}
		return "get"
	case dryRun:
		return "dryrun"
	}
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if r.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(r.Method)
}
