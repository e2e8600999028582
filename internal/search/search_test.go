package search

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/query"
)

// testAPI knows tokens, which are the names of users, and rights as "user verb resource namespace/name".
type testAPI struct {
	mu      sync.Mutex
	rights  map[string]bool
	revoked map[string]bool
	fails   bool
	reviews int
}

func (a *testAPI) ReviewToken(_ context.Context, token string) (kube.User, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reviews++
	if a.fails {
		return kube.User{}, false, errors.New("secret-name of the API server")
	}
	name, ok := strings.CutPrefix(token, "token-")
	return kube.User{Name: name, Groups: []string{"g"}}, ok && !a.revoked[token], nil
}

func (a *testAPI) ReviewAccess(_ context.Context, user kube.User, access kube.Access) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reviews++
	return a.rights[fmt.Sprintf("%s %s %s %s/%s", user.Name, access.Verb, access.Resource, access.Namespace, access.Name)], nil
}

func (a *testAPI) Get(context.Context, kind.Ref) (*kind.Object, error) { return nil, nil }

func (a *testAPI) set(change func(*testAPI)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func newTestServer(t *testing.T) (*Server, *testAPI) {
	t.Helper()
	api := &testAPI{revoked: map[string]bool{}, rights: map[string]bool{
		"admin list applications /":      true,
		"admin list agents argocd/":      true,
		"team list applications a/":      true,
		"team list applications shared/": true,
		"team get agents argocd/a":       true,
		"blind list applications /":      true,
	}}
	s := New(Config{Settings: Settings{Extension: new(Extension)}, Namespace: "argocd", Registry: fleet.NewRegistry(fleet.RegistryConfig{}), Log: slog.New(slog.DiscardHandler),
		Others: func() []string { return nil }})
	s.access.api = api
	for _, a := range []query.Application{
		{Namespace: "a", Name: "web", Agent: "a", Project: "shop", Health: "Healthy", Images: []string{"nginx:1"}},
		{Namespace: "b", Name: "secret-web", Agent: "b", Project: "shop", Health: "Degraded", Images: []string{"nginx:2"}},
		{Namespace: "shared", Name: "of-a", Agent: "a", Project: "shop", Health: "Healthy"},
		{Namespace: "shared", Name: "secret-of-b", Agent: "b", Project: "shop", Health: "Healthy"},
		{Namespace: "shared", Name: "of-none", Project: "shop", Health: "Unknown"},
	} {
		s.change(func(m *query.Model) { m.Set(a) })
	}
	return s, api
}

// get requests a path as a user. It returns the status and the body.
func get(t *testing.T, s *Server, user, path string, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if user != "" {
		r.Header.Set("Authorization", "Bearer token-"+user)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func names(t *testing.T, body string) string {
	t.Helper()
	var page query.Page
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var all []string
	for _, a := range page.Items {
		all = append(all, a.Namespace+"/"+a.Name)
	}
	return fmt.Sprint(page.Total, " ", strings.Join(all, " "))
}

func TestApplications_ShowWhatCallerMaySee(t *testing.T) {
	s, _ := newTestServer(t)
	for _, test := range []struct{ user, query, want string }{
		{"admin", "", "5 a/web b/secret-web shared/of-a shared/of-none shared/secret-of-b"},
		{"admin", "image~nginx", "2 a/web b/secret-web"},
		{"team", "", "3 a/web shared/of-a shared/of-none"},
		{"team", "agent=b", "0 "},
		{"team", "agent=a,b", "2 a/web shared/of-a"},
		{"team", "secret", "0 "},
		{"team", "namespace=shared", "2 shared/of-a shared/of-none"},
		{"blind", "", "1 shared/of-none"}, // it may see no Agent
	} {
		code, body := get(t, s, test.user, "/v1/applications?query="+url.QueryEscape(test.query))
		if code != http.StatusOK || names(t, body) != test.want {
			t.Errorf("%s, %q: %d %s, want %s", test.user, test.query, code, body, test.want)
		}
		if test.user != "admin" && strings.Contains(body, "secret") {
			t.Errorf("%s, %q: %s", test.user, test.query, body)
		}
	}
}

func TestCounts_CountWhatCallerMaySee(t *testing.T) {
	s, _ := newTestServer(t)
	for user, want := range map[string]string{
		"admin": `{"total":5,"groups":[{"value":"a","count":2},{"value":"b","count":2},{"value":"","count":1}]}`,
		"team":  `{"total":3,"groups":[{"value":"a","count":2},{"value":"","count":1}]}`,
	} {
		if code, body := get(t, s, user, "/v1/counts?groupBy=agent"); code != http.StatusOK || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s", user, code, body)
		}
	}
}

func TestRequests_Refused(t *testing.T) {
	s, api := newTestServer(t)
	for _, test := range []struct {
		user, path string
		code       int
		message    string
	}{
		{"", "/v1/applications", 401, "no valid credentials"},
		{"admin", "/", 404, "use /v1/applications"},
		{"admin", "/v1/applications?query=x%3D1", 400, `unknown field \"x\"`},
		{"admin", "/v1/applications?query=" + strings.Repeat("a", query.MaxQuery+1), 400, "at most 4096 bytes"},
		{"admin", "/v1/applications?query=%zz", 400, "not valid"}, // and not the same as without a query
		{"admin", "/v1/applications?query=a;b", 400, "not valid"},
		{"admin", "/v1/counts?groupby=agent", 400, `unknown parameter \"groupby\"`},
		{"admin", "/v1/applications?query=a&query=b", 400, "query is given twice"},
		{"admin", "/v1/applications?limit=0", 400, "limit is not a number from 1 to 1000"},
		{"admin", "/v1/applications?limit=1001", 400, "limit is not a number"},
		{"admin", "/v1/applications?page=x", 400, "not a page token"},
		{"admin", "/v1/applications?sort=image", 400, "cannot sort by image"},
		{"admin", "/v1/counts?groupBy=x", 400, "unknown field"},
		{"admin", "/v1/watch?watch=x", 400, "not a watch token"},
		{"admin", "/v1/watch?query=freshness%3E1h", 400, "cannot be watched"},
		{"stranger", "/v1/applications", 403, "cannot list Applications"},
		{"stranger", "/v1/counts", 403, "cannot list Applications"},
		{"team", "/v1/applications?query=namespace%3Db", 403, "cannot list Applications"},
		{"team", "/v1/applications?query=namespace%3Dnosuch", 403, "cannot list Applications"}, // the same as for one that exists
	} {
		code, body := get(t, s, test.user, test.path)
		if code != test.code || !strings.Contains(body, test.message) || strings.Contains(body, "secret") {
			t.Errorf("%s %.60s: %d %s, want %d %s", test.user, test.path, code, body, test.code, test.message)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/applications", http.NoBody)
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if code, body := get(t, s, "admin", "/v1/applications", "Impersonate-User", "team"); code != http.StatusBadRequest || !strings.Contains(body, "impersonation is not supported") {
		t.Errorf("impersonation: %d %s", code, body)
	}
	api.set(func(a *testAPI) { a.fails = true })
	if code, body := get(t, s, "new", "/v1/applications"); code != http.StatusServiceUnavailable || strings.Contains(body, "secret-name") {
		t.Errorf("without API server: %d %s", code, body)
	}
}

func TestAccess_IsRememberedForAShortTime(t *testing.T) {
	s, api := newTestServer(t)
	for range 3 {
		if code, _ := get(t, s, "team", "/v1/applications"); code != http.StatusOK {
			t.Fatal(code)
		}
	}
	first := api.reviews // token, two lists, three namespaces, two agents
	if first != 8 {
		t.Errorf("%d reviews", first)
	}
	c := newCache[int](2, reviewTTL)
	now, calls := time.Now(), 0
	read := func() (int, error) { calls++; return calls, nil }
	for _, test := range []struct {
		key   byte
		after time.Duration
		calls int
	}{{1, 0, 1}, {1, reviewTTL - 1, 1}, {1, reviewTTL, 2}, {2, reviewTTL, 3}, {3, reviewTTL, 4}, {1, reviewTTL, 5}} {
		if _, err := c.get([32]byte{test.key}, now.Add(test.after), read); err != nil || calls != test.calls || len(c.entries) > 2 {
			t.Errorf("key %d after %s: %d calls, %d entries", test.key, test.after, calls, len(c.entries))
		}
	}
}

func TestCaller_WithoutRightToAllMustNarrowLargeFleet(t *testing.T) {
	s, api := newTestServer(t)
	for i := range maxReviewedNames {
		s.change(func(m *query.Model) {
			m.Set(query.Application{Namespace: fmt.Sprint("n", i), Name: "x", Agent: fmt.Sprint("n", i)})
		})
	}
	before := api.reviews
	if code, body := get(t, s, "team", "/v1/applications"); code != http.StatusForbidden || !strings.Contains(body, "add namespace=NAME") {
		t.Errorf("%d %s", code, body)
	}
	if n := api.reviews - before; n > 3 {
		t.Errorf("%d reviews", n)
	}
	if code, body := get(t, s, "team", "/v1/applications?query=namespace%3DA"); code != http.StatusOK || names(t, body) != "1 a/web" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, s, "blind", "/v1/applications"); code != http.StatusForbidden || !strings.Contains(body, "add agent=NAME") {
		t.Errorf("%d %s", code, body)
	}
}

func TestExtension_SeesOnlyItsApplication(t *testing.T) {
	s, _ := newTestServer(t)
	secret := strings.Repeat("s", minSecret)
	header := func(secret, application, project string) []string {
		return []string{extensionHeader, secret, applicationHeader, application, projectHeader, project, usernameHeader, "system:admin", "Argocd-User-Groups", "system:masters"}
	}
	request := func(headers []string) (int, string) { return get(t, s, "", "/v1/applications", headers...) }
	if code, _ := request(header(secret, "a:web", "shop")); code != http.StatusUnauthorized {
		t.Errorf("without a Secret: %d", code)
	}
	for _, data := range []map[string][]byte{nil, {}, {"token": []byte("short")}, {"token": []byte(strings.Repeat(" ", minSecret))}} {
		if s.access.extension.Load(data) == nil {
			t.Errorf("%v is accepted", data)
		}
	}
	if err := s.access.extension.Load(map[string][]byte{"token": []byte(secret + "\n")}); err != nil { // argocd-server trims it, too
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		headers []string
		code    int
		want    string
	}{
		{"its Application", header(secret, "a:web", "shop"), 200, "1 a/web"},
		{"another project", header(secret, "a:web", "other"), 200, "0 "},
		{"no such Application", header(secret, "a:none", "shop"), 200, "0 "},
		{"wrong secret", header(secret+"x", "a:web", "shop"), 401, ""},
		{"no Application", header(secret, "", "shop"), 400, ""},
		{"no namespace", header(secret, "web", "shop"), 400, ""},
		{"no project", header(secret, "a:web", ""), 400, ""},
		{"headers without the secret", header("", "a:web", "shop"), 401, ""},
	} {
		code, body := request(test.headers)
		if code != test.code || test.want != "" && names(t, body) != test.want {
			t.Errorf("%s: %d %s", test.name, code, body)
		}
	}
}

// certificate returns a certificate of a CA, or a CA if ca is nil.
func certificate(t *testing.T, subject pkix.Name, ca *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	parent, signer := template, any(key)
	if ca == nil {
		template.IsCA, template.BasicConstraintsValid, template.ExtKeyUsage = true, true, nil
	} else {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestClientCertificate_OfAPIServersCAIsAUser(t *testing.T) {
	s, _ := newTestServer(t)
	ca, other := certificate(t, pkix.Name{CommonName: "ca"}, nil), certificate(t, pkix.Name{CommonName: "ca"}, nil)
	request := func(c *tls.Certificate) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/applications", http.NoBody)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Leaf}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	team := certificate(t, pkix.Name{CommonName: "team", Organization: []string{"g"}}, ca)
	if code, body := request(team); code != http.StatusUnauthorized || !strings.Contains(body, "cannot verify client certificates") {
		t.Errorf("before the CA is known: %d %s", code, body)
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": clientCARef.Name, "namespace": clientCARef.Namespace},
		"data": map[string]string{"client-ca-file": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Leaf.Raw}))}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	s.access.setClientCA(o)
	if code, body := request(team); code != http.StatusOK || names(t, body) != "3 a/web shared/of-a shared/of-none" {
		t.Errorf("%d %s", code, body)
	}
	for name, c := range map[string]*tls.Certificate{"another CA": certificate(t, pkix.Name{CommonName: "admin"}, other), "no name": certificate(t, pkix.Name{Organization: []string{"x"}}, ca)} {
		if code, body := request(c); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func TestLimits_HoldPerUserAndInTotal(t *testing.T) {
	l := newLimiter(3, 2)
	for _, test := range []struct {
		user string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"c", false}} {
		if got := l.acquire(test.user); got != test.want {
			t.Errorf("%s: %t", test.user, got)
		}
	}
	l.release("a")
	if !l.acquire("c") || len(l.users) != 3 {
		t.Error("a released place is not free")
	}
	for _, user := range []string{"a", "b", "c"} {
		l.release(user)
	}
	if l.all != 0 || len(l.users) != 0 {
		t.Errorf("%d, %v", l.all, l.users)
	}
	s, _ := newTestServer(t)
	s.requests = newLimiter(0, 0)
	if code, body := get(t, s, "admin", "/v1/applications"); code != http.StatusTooManyRequests {
		t.Errorf("%d %s", code, body)
	}
}

func TestWatch_StreamsChangesOfResult(t *testing.T) {
	s, _ := newTestServer(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	_, body := get(t, s, "team", "/v1/applications?query=health%3DHealthy")
	var page query.Page
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/watch?query=health%3DHealthy&watch="+page.Watch, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer token-team")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var u query.Update
		if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, a := range u.Changed {
			text += "+" + a.Name
		}
		for _, k := range u.Removed {
			text += "-" + k.Name
		}
		return text
	}
	if got := next(); got != "" {
		t.Errorf("at first: %s", got)
	}
	s.change(func(m *query.Model) {
		m.Set(query.Application{Namespace: "a", Name: "web", Agent: "a", Project: "shop", Health: "Degraded"})
		m.Delete(query.Key{Namespace: "shared", Name: "secret-of-b"})
		m.Set(query.Application{Namespace: "b", Name: "secret-new", Agent: "b", Project: "shop", Health: "Healthy"})
		m.Set(query.Application{Namespace: "a", Name: "new", Agent: "a", Project: "shop", Health: "Healthy"})
	})
	if got := next(); got != "+new-web" {
		t.Errorf("after changes: %s", got)
	}
	if code, body := get(t, s, "team", "/v1/watch?watch="+watchTokenOf(t, query.NewModel("other"))); code != http.StatusGone || !strings.Contains(body, "start again") {
		t.Errorf("token of another replica: %d %s", code, body)
	}
}

func watchTokenOf(t *testing.T, m *query.Model) string {
	t.Helper()
	page, err := m.Snapshot().List(query.Request{Limit: 1}, query.Scope{}, query.Clock{})
	if err != nil {
		t.Fatal(err)
	}
	return page.Watch
}
