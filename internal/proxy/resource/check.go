package resource

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	maxURI     = 32 << 10 // far more than label selectors need
	maxHeaders = 64 << 10
)

// checkRequest rejects requests that no Kubernetes client sends, and requests that two parsers might read differently. It
// also normalizes the path. Hub and Agent call it first.
func checkRequest(r *http.Request) (url.Values, *Status) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil, newStatus(http.StatusMethodNotAllowed, "MethodNotAllowed", fmt.Sprintf("method %q is not supported by API servers", r.Method))
	}
	if len(r.RequestURI) > maxURI {
		return nil, newStatus(http.StatusRequestURITooLong, "BadRequest", fmt.Sprintf("the URI is longer than %d bytes", maxURI))
	}
	if !strings.HasPrefix(r.RequestURI, "/") || strings.HasPrefix(r.RequestURI, "//") || r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" {
		return nil, badRequest("the request target must be a path")
	}
	if why := checkPath(r.URL); why != "" {
		return nil, badRequest(why)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("invalid query: " + err.Error())
	}
	r.URL.RawPath = "" // a valid path has one encoding
	return query, nil
}

// checkPath returns what is wrong with a path, or "". Every parser splits a valid path into the same segments.
func checkPath(u *url.URL) string {
	if escaped := strings.ToLower(u.EscapedPath()); strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") || strings.Contains(escaped, "%2e") {
		return "the path has an encoded slash or dot"
	}
	for i := range len(u.Path) {
		if c := u.Path[i]; c < 0x20 || c == 0x7f || c == '\\' || c == '%' {
			return "the path has an invalid character"
		}
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	if inner == "" {
		return ""
	}
	for segment := range strings.SplitSeq(inner, "/") {
		switch segment {
		case "":
			return "the path has an empty segment"
		case ".", "..":
			return "the path has a relative segment"
		}
	}
	return ""
}
