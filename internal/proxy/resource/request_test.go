package resource

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func read(t testing.TB, method, target string) (Request, *Status) {
	t.Helper()
	r := httptest.NewRequest(method, target, http.NoBody)
	query, status := checkRequest(r)
	if status != nil {
		return Request{}, status
	}
	return parse(r, query), nil
}

func TestParse_AsTheAPIServer(t *testing.T) {
	for target, want := range map[string]Request{
		"GET /":                                      {},
		"GET /version":                               {},
		"GET /api":                                   {},
		"GET /api/v1":                                {},
		"GET /apis/apps":                             {},
		"GET /apis/apps/v1":                          {},
		"GET /apis/apps/v1/":                         {},
		"GET /openapi/v3/apis/x/v1":                  {},
		"GET /api/v1/pods":                           {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=1":                   {Verb: "watch", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=":                    {Verb: "watch", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=0":                   {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=FALSE":               {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/namespaces/a/pods/p":            {Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: "p"},
		"HEAD /api/v1/namespaces/a/pods/p":           {Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: "p"},
		"GET /api/v1/namespaces/a/pods/p?watch=true": {Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: "p"},
		"GET /api/v1/namespaces/a/pods/p/log":        {Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: "p", Subresource: "log"},
		"POST /api/v1/namespaces/a/pods/p/exec":      {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a", Name: "p", Subresource: "exec"},
		"GET /api/v1/namespaces/a/services/s/proxy/x/y": {
			Verb: "get", Version: "v1", Resource: "services", Namespace: "a", Name: "s", Subresource: "proxy", Rest: "x/y",
		},
		"GET /api/v1/namespaces":                          {Verb: "list", Version: "v1", Resource: "namespaces"},
		"GET /api/v1/namespaces/a":                        {Verb: "get", Version: "v1", Resource: "namespaces", Name: "a"},
		"PUT /api/v1/namespaces/a/finalize":               {Verb: "update", Version: "v1", Resource: "namespaces", Name: "a", Subresource: "finalize"},
		"PATCH /api/v1/namespaces/a/status":               {Verb: "patch", Version: "v1", Resource: "namespaces", Name: "a", Subresource: "status"},
		"DELETE /apis/apps/v1/namespaces/a/deployments":   {Verb: "deletecollection", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "a"},
		"DELETE /apis/apps/v1/namespaces/a/deployments/d": {Verb: "delete", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "a", Name: "d"},
		"GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system:x": {
			Verb: "get", Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Name: "system:x",
		},
		"GET /api/v1/watch/namespaces/a/pods":   {Verb: "watch", Version: "v1", Resource: "pods", Namespace: "a"},
		"GET /api/v1/watch/namespaces/a/pods/p": {Verb: "watch", Version: "v1", Resource: "pods", Namespace: "a", Name: "p"},
		"GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp": {
			Verb: "list", Version: "v1", Resource: "pods", Namespace: "a", Selected: "p",
		},
		"GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dp":                    {Verb: "list", Version: "v1", Resource: "pods", Namespace: "a"},
		"GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp&fieldSelector=x%3Dy": {Verb: "list", Version: "v1", Resource: "pods", Namespace: "a"},
		"GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp,metadata.name%3Dq":   {Verb: "list", Version: "v1", Resource: "pods", Namespace: "a"},
		`GET /api/v1/namespaces/a/pods?fieldSelector=x%3Dy%5C,metadata.name%3Dp`:            {Verb: "list", Version: "v1", Resource: "pods", Namespace: "a"},
		"DELETE /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp":                  {Verb: "deletecollection", Version: "v1", Resource: "pods", Namespace: "a"},
		"POST /api/v1/namespaces/a/pods?dryRun=All":                                         {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a", DryRun: true},
		"POST /api/v1/namespaces/a/pods?dryRun=all":                                         {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a"},
		"POST /api/v1/namespaces/a/pods?dryRun=All&dryRun=":                                 {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a"},
		"POST /api/v1/namespaces/a/pods/p/exec?dryRun=All":                                  {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a", Name: "p", Subresource: "exec"},
		"DELETE /api/v1/namespaces/a/pods/p?dryRun=All":                                     {Verb: "delete", Version: "v1", Resource: "pods", Namespace: "a", Name: "p", DryRun: true},
		"POST /api/v1/namespaces/a/serviceaccounts/s/token?dryRun=All": {
			Verb: "create", Version: "v1", Resource: "serviceaccounts", Namespace: "a", Name: "s", Subresource: "token",
		},
		"GET /api/v1/namespaces/a/events?fieldSelector=involvedObject.name%3Dp,involvedObject.namespace%3Da,involvedObject.uid%3Du": {
			Verb: "list", Version: "v1", Resource: "events", Namespace: "a", Subject: Subject{Namespace: "a", Name: "p", UID: "u"},
		},
		"GET /api/v1/events?fieldSelector=involvedObject.name%3Dp": {
			Verb: "list", Version: "v1", Resource: "events", Subject: Subject{Name: "p", AnyNamespace: true},
		},
		"GET /apis/events.k8s.io/v1/namespaces/a/events?fieldSelector=regarding.name%3Dp,regarding.kind%3DPod": {
			Verb: "list", Group: "events.k8s.io", Version: "v1", Resource: "events", Namespace: "a", Subject: Subject{Namespace: "a", Name: "p", Kind: "Pod"},
		},
	} {
		method, target, _ := strings.Cut(target, " ")
		got, status := read(t, method, target)
		if status != nil {
			t.Errorf("%s %s: refused: %s", method, target, status.Message)
		} else if got != want {
			t.Errorf("%s %s:\n got %+v\nwant %+v", method, target, got, want)
		}
	}
}

func TestParse_DeleteWithBodyIsNoDryRun(t *testing.T) {
	r := httptest.NewRequest(http.MethodDelete, "/api/v1/namespaces/a/pods/p?dryRun=All", strings.NewReader("{}"))
	query, status := checkRequest(r)
	if status != nil {
		t.Fatal(status)
	}
	if parse(r, query).DryRun {
		t.Error("the API server looks into the body, where there is no dry run")
	}
}

func TestCheckPath_RejectsAmbiguousPaths(t *testing.T) {
	for _, target := range []string{
		"/api/v1/../../version", "/api/v1/./pods", "/api//v1/pods", "/api/v1/namespaces/a%2fpods/p", "/api/v1/namespaces/a%2Fpods",
		"/api/v1/%2e%2e/x", "/api/v1/%5cx", "/api/v1/pods/%00", "/api/v1/pods/a%0ab", "/api/v1/pods/%252e%252e", `/api/v1/pods/a\b`,
		"//elsewhere/api", "http://elsewhere/api/v1/pods", "/api/v1/pods?x=%zz", "/api/v1/pods?a;b", "/" + strings.Repeat("x", maxURI),
	} {
		if got, status := read(t, http.MethodGet, target); status == nil {
			t.Errorf("%.60q was read as %+v", target, got)
		}
	}
	for _, method := range []string{http.MethodConnect, http.MethodTrace, http.MethodOptions, "PROPFIND", "get"} {
		if _, status := read(t, method, "/api/v1/pods"); status == nil || status.Code != http.StatusMethodNotAllowed {
			t.Errorf("method %s: %v", method, status)
		}
	}
}

func TestIsDocument(t *testing.T) {
	for path, want := range map[string]bool{
		"/version": true, "/version/": true, "/api": true, "/api/v1": true, "/apis": true, "/apis/apps": true, "/apis/apps/v1": true,
		"/openapi/v2": true, "/openapi/v3": true, "/openapi/v3/apis/apps/v1": true,
		"/": false, "/openapi": false, "/healthz": false, "/metrics": false, "/version/x": false, "/api/v1/pods": false,
		"/apis/apps/v1/deployments": false, "/logs/x": false,
	} {
		if got := isDocument(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// FuzzRequest checks that whatever passes has one meaning: the path that is sent on is the path that was judged.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"/api/v1/namespaces/a/pods/p/log?follow=true", "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx", "/api/v1/%2e%2e/x",
		"/api/v1/watch/namespaces/a/pods/p", "/api/v1/namespaces/a/status", "//x", "/api/v1/namespaces/%E2%82%AC/pods",
	} {
		f.Add("GET", seed)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x", http.NoBody)
		if err != nil {
			return
		}
		parsed, err := r.URL.Parse(target)
		if err != nil {
			return
		}
		r.URL, r.RequestURI = parsed, target
		r.URL.Scheme, r.URL.Host = "", ""
		query, status := checkRequest(r)
		if status != nil {
			return
		}
		q := parse(r, query)
		for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
			if segment == ".." || segment == "." || strings.Contains(strings.ToLower(segment), "%2f") {
				t.Fatalf("%q was let through", target)
			}
		}
		if q.Verb == "" {
			return
		}
		if strings.Contains(q.Name+q.Namespace+q.Resource+q.Subresource, "/") {
			t.Fatalf("%q has a segment with a slash: %+v", target, q)
		}
		if q.Name != "" && !strings.Contains(r.URL.Path, "/watch/") && strings.Trim(q.path(), "/") != strings.Trim(r.URL.Path, "/") {
			t.Fatalf("%q was judged as %q", r.URL.Path, q.path())
		}
	})
}
