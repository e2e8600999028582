package memcluster

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func request(t *testing.T, c *Cluster, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://memory/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const apps = "apis/argoproj.io/v1alpha1/namespaces/argocd/applications"

func TestCluster_WritesAreConditionalAndWatched(t *testing.T) {
	c := New("uid", "argocd")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://memory/"+apps+"?watch=1&resourceVersion=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	events := bufio.NewScanner(watch.Body)

	for _, step := range []struct {
		method, path, body string
		code               int
		event              string // expected watch event, if any
	}{
		{"POST", apps, `{"metadata":{"name":"a"}}`, 200, "ADDED a"},
		{"POST", apps, `{"metadata":{"name":"a"}}`, 409, ""},
		{"PUT", apps + "/a", `{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"x":1}}`, 409, ""},
		{"PATCH", apps + "/a", `{"spec":{"x":2},"metadata":{"finalizers":["f"]}}`, 200, "MODIFIED a"},
		{"PATCH", apps + "/a", `{"spec":{"x":2}}`, 200, ""}, // no change
		{"DELETE", apps + "/a", `{"preconditions":{"uid":"other"}}`, 409, ""},
		{"DELETE", apps + "/a", `{}`, 200, "MODIFIED a"}, // has a finalizer
		{"PATCH", apps + "/a", `{"metadata":{"finalizers":null}}`, 200, "DELETED a"},
		{"GET", apps + "/a", ``, 404, ""},
		{"POST", strings.Replace(apps, "argocd", "nowhere", 1), `{"metadata":{"name":"a"}}`, 404, ""},
		{"POST", apps, `{"metadata":{"name":"b"}}`, 200, "ADDED b"},
	} {
		if code, body := request(t, c, step.method, step.path, step.body); code != step.code {
			t.Fatalf("%s %s %s: %d %s, want %d", step.method, step.path, step.body, code, body, step.code)
		}
		if step.event == "" {
			continue
		}
		if !events.Scan() {
			t.Fatal("the watch ended:", events.Err())
		}
		var e struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal(events.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if got := e.Type + " " + e.Object.Metadata.Name; got != step.event {
			t.Fatalf("%s %s: the watch shows %s, want %s", step.method, step.body, got, step.event)
		}
	}
}

func TestCluster_ExpiredWatchReturnsGone(t *testing.T) {
	c := New("uid", "argocd")
	for range 2 * remembered {
		if code, body := request(t, c, "POST", apps, `{"metadata":{"name":"a"}}`); code != 200 {
			t.Fatal(code, body)
		}
		if code, body := request(t, c, "DELETE", apps+"/a", `{}`); code != 200 {
			t.Fatal(code, body)
		}
	}
	if code, _ := request(t, c, "GET", apps+"?watch=1&resourceVersion=5", ""); code != http.StatusGone {
		t.Errorf("answered with %d, want 410", code)
	}
}

func TestCluster_ListsByLabel(t *testing.T) {
	c := New("uid", "argocd")
	secrets := "api/v1/namespaces/argocd/secrets"
	request(t, c, "POST", secrets, `{"metadata":{"name":"a","labels":{"argocd.argoproj.io/secret-type":"repository"}}}`)
	request(t, c, "POST", secrets, `{"metadata":{"name":"b","labels":{"argocd.argoproj.io/secret-type":"cluster"}}}`)
	_, body := request(t, c, "GET", secrets+"?labelSelector=argocd.argoproj.io%2Fsecret-type+in+%28repository%2Crepo-creds%29", "")
	if !strings.Contains(body, `"name":"a"`) || strings.Contains(body, `"name":"b"`) {
		t.Errorf("listed %s", body)
	}
}
