package kube

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestReviews_AskAPIServer(t *testing.T) {
	var path, body, answer string
	code := http.StatusCreated
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		path, body = r.Method+" "+r.URL.Path, string(b)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		answer string
		ok     bool
	}{
		{`{"status":{"authenticated":true,"user":{"username":"u","groups":["g"],"extra":{"k":["v"]}}}}`, true},
		{`{"status":{"authenticated":false,"user":{"username":"u"}}}`, false},
		{`{"status":{"authenticated":true,"user":{}}}`, false},
		{`{}`, false},
	} {
		answer = test.answer
		user, ok, err := c.ReviewToken(t.Context(), "secret")
		if err != nil || ok != test.ok || ok && (user.Name != "u" || user.Groups[0] != "g" || user.Extra["k"][0] != "v") {
			t.Errorf("%s: %+v, %t, %v", test.answer, user, ok, err)
		}
	}
	if path != "POST /apis/authentication.k8s.io/v1/tokenreviews" || !strings.Contains(body, `"spec":{"token":"secret"}`) {
		t.Errorf("%s %s", path, body)
	}
	for _, test := range []struct {
		answer string
		want   bool
	}{{`{"status":{"allowed":true}}`, true}, {`{"status":{"allowed":true,"denied":true}}`, false}, {`{"status":{"allowed":false}}`, false}, {`{}`, false}} {
		answer = test.answer
		if got, err := c.ReviewAccess(t.Context(), User{Name: "u", Groups: []string{"g"}}, Access{Verb: "get", Group: "x", Resource: "agents", Namespace: "n", Name: "a"}); err != nil || got != test.want {
			t.Errorf("%s: %t, %v", test.answer, got, err)
		}
	}
	if want := `"resourceAttributes":{"verb":"get","group":"x","resource":"agents","namespace":"n","name":"a"}`; path != "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" ||
		!strings.Contains(body, want) || !strings.Contains(body, `"user":"u"`) || !strings.Contains(body, `"groups":["g"]`) {
		t.Errorf("%s %s", path, body)
	}
	code = http.StatusForbidden
	if _, ok, err := c.ReviewToken(t.Context(), "secret"); err == nil || ok {
		t.Error("a failed review authenticates")
	}
	if ok, err := c.ReviewAccess(t.Context(), User{}, Access{}); err == nil || ok {
		t.Error("a failed review permits")
	}
}
