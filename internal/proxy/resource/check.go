package resource

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	maxURI     = 32 << 10 // label selectors of people and programs end far below
	maxHeaders = 64 << 10
)

// checkRequest refuses what no client of an API server sends, and what two programs might read in two ways. On the way
// it brings the path into the one form in which it goes on. Both halves call it, before anything else.
func checkRequest(r *http.Request) (url.Values, *Status) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil, refusal(http.StatusMethodNotAllowed, "MethodNotAllowed", fmt.Sprintf("method %q is not one that an API server has", r.Method))
	}
	if len(r.RequestURI) > maxURI {
		return nil, refusal(http.StatusRequestURITooLong, "BadRequest", fmt.Sprintf("the address is longer than %d bytes", maxURI))
	}
	if !strings.HasPrefix(r.RequestURI, "/") || strings.HasPrefix(r.RequestURI, "//") || r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" {
		return nil, badRequest("the request names more than a path")
	}
	if why := checkPath(r.URL); why != "" {
		return nil, badRequest(why)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read: " + err.Error())
	}
	r.URL.RawPath = "" // what checkPath lets through has one encoding
	return query, nil
}

// checkPath says what is wrong with a path; nothing means that every reader of it sees the same segments.
func checkPath(u *url.URL) string {
	if escaped := strings.ToLower(u.EscapedPath()); strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") || strings.Contains(escaped, "%2e") {
		return "the path hides a slash or a dot"
	}
	for i := range len(u.Path) {
		if c := u.Path[i]; c < 0x20 || c == 0x7f || c == '\\' || c == '%' {
			return "the path has a character that names do not have"
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
