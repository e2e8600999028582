package faultproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	inJSON     = "application/json"
	inProtobuf = "application/vnd.kubernetes.protobuf"
)

// broken reports whether client-go returned the error of a broken stream, or its end.
const broken = string(watch.Error)

func named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

func update(t *testing.T, client kubernetes.Interface, name string) error {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), named(name), metav1.UpdateOptions{})
	return err
}

func TestAPI_ForwardsRequestsUnchanged(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	got, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{ResourceVersion: "7"})
	must(t, err)
	want := map[string]string{"authorization": "Bearer s3cr3t", "proto": "HTTP/2.0", "query": "resourceVersion=7"}
	for key, value := range want {
		if got.Data[key] != value {
			t.Errorf("the server got %s %q, want %q", key, got.Data[key], value)
		}
	}
	must(t, update(t, client, "x"))
}

func TestAPI_RulesReturnKubernetesStatus(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	for name, tc := range map[string]struct {
		do Action
		is func(error) bool
	}{
		"conflict":    {Conflict(), apierrors.IsConflict},
		"gone":        {Gone(), apierrors.IsResourceExpired},
		"internal":    {InternalError(), apierrors.IsInternalError},
		"unavailable": {Unavailable(), apierrors.IsServiceUnavailable},
		"own":         {Answer(apierrors.NewUnauthorized("who are you?").Status()), apierrors.IsUnauthorized},
		"abort":       {Abort(), func(err error) bool { return err != nil && !apierrors.IsConflict(err) }},
	} {
		fault := api.Add(Rule{Match: Match{Verbs: []string{"update"}, Path: regexp.MustCompile(`/configmaps/`)}, Do: tc.do, Times: 1})
		if err := update(t, client, "x"); !tc.is(err) {
			t.Errorf("%s: the client got %v", name, err)
		}
		if fault.Hits() != 1 {
			t.Errorf("%s: %d hits", name, fault.Hits())
		}
		if err := update(t, client, "x"); err != nil {
			t.Errorf("%s: after its one time: %v", name, err)
		}
		fault.Remove()
	}
}

func TestAPI_TooManyRequestsHasRetryAfter(t *testing.T) {
	s := newStub(t)
	api := s.front()
	api.Add(Rule{Do: TooManyRequests(3)})
	resp, err := s.Client().Get(api.URL() + "/api/v1/namespaces/default/configmaps/x")
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "3" {
		t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
}

func TestAPI_RulesCountSkipAndAreRemoved(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	match := Match{Verbs: []string{http.MethodPut}, Path: regexp.MustCompile(`/configmaps/a$`)}
	fault := api.Add(Rule{Match: match, Do: Conflict(), Skip: 1, Times: 2})
	var outcome []bool
	for range 4 {
		outcome = append(outcome, apierrors.IsConflict(update(t, client, "a")))
	}
	if want := []bool{false, true, true, false}; !slices.Equal(outcome, want) {
		t.Errorf("conflicts: %v, want %v", outcome, want)
	}
	must(t, update(t, client, "b"))
	fault.Remove()

	forever := api.Add(Rule{Match: match, Do: Conflict()})
	if err := update(t, client, "a"); !apierrors.IsConflict(err) {
		t.Error(err)
	}
	forever.Remove()
	forever.Remove()
	must(t, update(t, client, "a"))
	api.Add(Rule{Do: InternalError()})
	api.RemoveAll()
	must(t, update(t, client, "a"))
}

func TestAPI_HeldRequestContinuesAfterRemoval(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	fault := api.Add(Rule{Match: Match{Verbs: WriteVerbs}, Do: Hold()})
	result := make(chan error, 1)
	go func() { result <- update(t, client, "x") }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, fault.WaitHits(ctx, 1))
	_, err := client.CoreV1().ConfigMaps("default").Get(ctx, "x", metav1.GetOptions{}) // reads pass
	must(t, err)
	select {
	case err := <-result:
		t.Fatalf("the held update returned: %v", err)
	default:
	}
	fault.Remove()
	must(t, <-result)

	api.Add(Rule{Match: Match{Verbs: WriteVerbs}, Do: Delay(20 * time.Millisecond)})
	start := time.Now()
	must(t, update(t, client, "x"))
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("the delayed update took %v", took)
	}
	api.Add(Rule{Do: Hold()})
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_ = api.WaitCount(ctx, Match{Path: regexp.MustCompile(`/left$`)}, 1)
	}()
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "left", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gives up: %v", err)
	}
}

func TestAPI_ForwardsUpgrades(t *testing.T) {
	s := newStub(t)
	api := s.front()
	for method, protocol := range map[string]string{http.MethodGet: "websocket", http.MethodPost: "SPDY/3.1"} {
		conn, r := s.upgraded(api, method, protocol)
		_, err := io.WriteString(conn, "ping")
		must(t, err)
		got := make([]byte, 4)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "ping" {
			t.Errorf("%s: %q, %v", protocol, got, err)
		}
	}
	if n := api.Count(Match{Verbs: []string{"connect"}}); n != 2 {
		t.Errorf("%d connects counted", n)
	}
}

func TestAPI_CountsByVerbAndPath(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	maps := client.CoreV1().ConfigMaps("default")
	must(t, update(t, client, "x"))
	must(t, update(t, client, "x"))
	_, err := maps.Create(t.Context(), named("y"), metav1.CreateOptions{})
	must(t, err)
	_, err = maps.Update(t.Context(), named("x"), metav1.UpdateOptions{DryRun: []string{"All"}})
	must(t, err)
	_, err = maps.Get(t.Context(), "x", metav1.GetOptions{})
	must(t, err)
	if n := api.Count(Match{Verbs: WriteVerbs}); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
	var got []string
	for _, c := range api.Requests(Match{Path: regexp.MustCompile(`/x$`)}) {
		got = append(got, strings.Repeat(c.Verb+" "+c.Namespace+"/"+c.Name+" ", c.Times))
	}
	if want := []string{"dryrun default/x ", "get default/x ", "update default/x update default/x "}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	api.ResetCounts()
	if n := api.Count(Match{}); n != 0 {
		t.Errorf("%d after the reset", n)
	}
}

func TestAPI_CloseEndsWatchesHoldsAndUpgrades(t *testing.T) {
	s := newStub(t)
	before := runtime.NumGoroutine()
	api := s.front()
	client := s.client(api, inJSON)
	w, _ := open(t, s, client)
	conn, _ := s.upgraded(api, http.MethodGet, "websocket")
	fault := api.Add(Rule{Match: Match{Verbs: WriteVerbs}, Do: Hold()})
	result := make(chan error, 1)
	go func() { result <- update(t, client, "x") }()
	must(t, fault.WaitHits(t.Context(), 1))
	must(t, api.Close())
	if err := <-result; err == nil {
		t.Error("the held update went through")
	}
	if got := next(t, w); got != broken && got != "" {
		t.Errorf("the watch had %q", got)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the upgraded connection is open")
	}
	s.CloseClientConnections()
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestAPI_UnreachableServerClosesConnection(t *testing.T) {
	s := newStub(t)
	api := s.front()
	s.Close()
	if resp, err := s.Client().Get(api.URL() + "/version"); err == nil {
		_ = resp.Body.Close()
		t.Errorf("got %s, want a broken connection", resp.Status)
	}
}

func TestNewAPI_RejectsInvalidOptions(t *testing.T) {
	for want, opts := range map[string]APIOptions{
		"give the API server's URL": {Target: "127.0.0.1"},
		"no PEM certificate":        {Target: "https://127.0.0.1:1", TargetCA: []byte("x")},
	} {
		if _, err := NewAPI(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
