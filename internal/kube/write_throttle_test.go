package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// unhurried makes every pause as long as it can be.
func unhurried() float64 { return 1 }

// server is an API server without a network, so that time can be virtual.
type server struct {
	answer func(*http.Request) (status int, retryAfter, message string)

	mu     sync.Mutex
	asked  []time.Time
	now    int // under way
	most   int
	served int
}

// RoundTrip answers after a while.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	status, retryAfter, message := s.answer(r)
	body := fmt.Sprintf(`{"kind":"Status","code":%d,"message":%q}`, status, message)
	if status == http.StatusOK {
		s.served++
		body = project("a", "2")
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// between counts the requests in a span of time.
func (s *server) between(from, to time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.asked {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// after is when it was first asked from then on.
func (s *server) after(from time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.asked {
		if !at.Before(from) {
			return at
		}
	}
	return time.Time{}
}

// owner brings what it wants written again after a while, as a peer does.
type owner struct {
	*Writer
	t     *testing.T
	again time.Duration
}

func (s *server) owner(t *testing.T, log io.Writer, parallel int) *owner {
	t.Helper()
	c, err := NewClient(&rest.Config{Host: "http://hub", Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{t: t, again: 10 * time.Second}
	o.Writer = NewWriter(c, func(ctx context.Context, in reconcile.Input) error {
		if wrote := in.(reconcile.WriteResult); wrote.Failure != nil && o.again > 0 {
			time.AfterFunc(o.again, func() { o.write(ctx, wrote.ID) })
		}
		return nil
	}, NamespacePolicy{}, parallel, unhurried, slog.New(slog.NewTextHandler(log, nil)))
	return o
}

func (o *owner) write(ctx context.Context, id uint64) {
	object := parsed(o.t, project(fmt.Sprintf("p-%d", id), "1"))
	o.Write(ctx, reconcile.Write{ID: id, Verb: reconcile.Update, Ref: refTo(object), Object: object})
}

func TestWriteThrottle_SlowsDownDuringAnOutage(t *testing.T) {
	for name, refusal := range map[string]func() (int, string, string){
		"too many requests": func() (int, string, string) { return 429, "", "too many requests, please try again later" },
		"full disk":         func() (int, string, string) { return 500, "", "etcdserver: mvcc: database space exceeded" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const writes, parallel, outage = 5000, 64, 2 * time.Minute
				began := time.Now()
				ends := began.Add(outage)
				s := &server{answer: func(*http.Request) (int, string, string) {
					if time.Now().Before(ends) {
						return refusal()
					}
					return 200, "", ""
				}}
				var log bytes.Buffer
				o := s.owner(t, &log, parallel)
				for i := range uint64(writes) {
					o.write(t.Context(), i)
				}
				time.Sleep(outage)
				if n := s.between(began.Add(10*time.Second), ends); n > 30 {
					t.Errorf("%d requests within 110 s of an API server that refuses them all", n)
				}
				if n := s.between(began.Add(time.Minute), ends); n < 6 {
					t.Errorf("%d requests within a minute: too few to notice the end of the outage", n)
				}
				if load := o.Stats(); !load.Outage || load.Limit != 1 || load.Waiting < writes-2*parallel {
					t.Errorf("during the outage: %+v", load)
				}
				time.Sleep(time.Minute)
				if s.most > parallel {
					t.Errorf("%d requests at once", s.most)
				}
				first := s.after(ends)
				if late := first.Sub(ends); late > maxPause {
					t.Errorf("retried %v after the outage", late)
				}
				if n := s.between(first, first.Add(20*time.Millisecond)); n > 15 { // of 5 ms each: 1, 2, 4, 8
					t.Errorf("%d requests at once after it came back", n)
				}
				if s.served != writes {
					t.Errorf("%d of %d were written", s.served, writes)
				}
				if load := o.Stats(); load.Outage || load.Limit != parallel || load.Waiting != 0 {
					t.Errorf("after it: %+v", load)
				}
				for _, want := range []string{"API server does not accept writes", "API server accepts writes again"} {
					if n := strings.Count(log.String(), want); n != 1 {
						t.Errorf("%q was logged %d times:\n%s", want, n, log.String())
					}
				}
				if strings.Contains(log.String(), "Failed to write object") {
					t.Errorf("it is not the fault of single objects:\n%s", log.String())
				}
			})
		})
	}
}

func TestWriteThrottle_HonorsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(*http.Request) (int, string, string) { return 429, "20", "later" }}
		o := s.owner(t, io.Discard, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range uint64(100) {
			o.write(ctx, i)
		}
		time.Sleep(19 * time.Second)
		if n := len(s.asked); n != 1 {
			t.Errorf("%d requests within the 20 s that it wanted to be left alone", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(s.asked); n != 2 {
			t.Errorf("%d requests after 21 s", n)
		}
		o.again = 0
		cancel()
		o.Wait()
	})
}

func TestWriteThrottle_IgnoresRejectedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(r *http.Request) (int, string, string) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/p-0"):
				return 500, "", `Internal error occurred: failed calling webhook "x"`
			case strings.HasSuffix(r.URL.Path, "/p-1"):
				return 429, "", `admission webhook "x" denied the request: come back tomorrow`
			}
			return 200, "", ""
		}}
		o := s.owner(t, io.Discard, 4)
		o.again = 0
		for i := range uint64(400) {
			o.write(t.Context(), i)
		}
		began := time.Now()
		o.Wait()
		if took := time.Since(began); took > time.Second || s.served != 398 {
			t.Errorf("%d written in %v", s.served, took)
		}
	})
}
