package faultproxy

import (
	"net/http/httptest"
	"testing"
)

func TestRequest_VerbsOfKubernetes(t *testing.T) {
	for _, tc := range []struct{ method, url, verb, resource, namespace, name, sub string }{
		{"GET", "/version", "get", "", "", "", ""},
		{"GET", "/apis/apps/v1", "get", "", "", "", ""},
		{"GET", "/api/v1/pods", "list", "pods", "", "", ""},
		{"GET", "/api/v1/pods?watch=1", "watch", "pods", "", "", ""},
		{"GET", "/api/v1/watch/namespaces/n/pods", "watch", "pods", "n", "", ""},
		{"GET", "/api/v1/namespaces/n/pods?watch=false", "list", "pods", "n", "", ""},
		{"GET", "/api/v1/namespaces/n/pods/p", "get", "pods", "n", "p", ""},
		{"GET", "/api/v1/namespaces/n/pods/p/log?follow=true", "get", "pods", "n", "p", "log"},
		{"POST", "/api/v1/namespaces/n/pods/p/exec", "connect", "pods", "n", "p", "exec"},
		{"GET", "/api/v1/namespaces/n/pods/p/portforward", "connect", "pods", "n", "p", "portforward"},
		{"GET", "/api/v1/namespaces/n", "get", "namespaces", "", "n", ""},
		{"PUT", "/api/v1/namespaces/n/finalize", "update", "namespaces", "", "n", "finalize"},
		{"POST", "/apis/argoproj.io/v1alpha1/namespaces/n/applications", "create", "applications", "n", "", ""},
		{"PATCH", "/apis/argoproj.io/v1alpha1/namespaces/n/applications/a", "patch", "applications", "n", "a", ""},
		{"PATCH", "/apis/apps/v1/namespaces/n/deployments/d?dryRun=All", "dryrun", "deployments", "n", "d", ""},
		{"DELETE", "/apis/apps/v1/namespaces/n/deployments/d", "delete", "deployments", "n", "d", ""},
		{"DELETE", "/apis/apps/v1/namespaces/n/deployments", "deletecollection", "deployments", "n", "", ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "create", "selfsubjectaccessreviews", "", "", ""},
	} {
		r := parseRequest(httptest.NewRequest(tc.method, tc.url, nil))
		if r.Verb != tc.verb || r.Resource != tc.resource || r.Namespace != tc.namespace || r.Name != tc.name || r.Subresource != tc.sub {
			t.Errorf("%s %s is %+v", tc.method, tc.url, r)
		}
	}
}
