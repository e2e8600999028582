package resource

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// nameServer responds with a body that repeats the name of the requested object and does not fit into one buffer.
func nameServer(t *testing.T) APIServer {
	t.Helper()
	return fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, nameBody(path.Base(r.URL.Path)))
	})
}

func nameBody(name string) string { return strings.Repeat(name, 3*copyBufferSize) }

// requestFor returns a request for an object of agent w1.
func requestFor(name string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/pods/"+name, http.NoBody)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "w1"}}}}
	return r
}

// Responses that are copied at the same time do not share a buffer: each caller gets its own bytes.
func TestCopyBuffers_HaveOneOwner(t *testing.T) {
	s := newStage(t, nameServer(t), options{})
	var callers sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		callers.Go(func() {
			for range 20 {
				answer := httptest.NewRecorder()
				s.hub.ServeHTTP(answer, requestFor(name))
				if answer.Body.String() != nameBody(name) {
					t.Errorf("the response of %s has other bytes", name)
				}
			}
		})
	}
	callers.Wait()
}

// resetWriter is the writer of a caller that resets its stream: net/http's HTTP/2 server still sends what it was given.
type resetWriter struct {
	header http.Header
	given  []byte
}

func (w *resetWriter) Header() http.Header { return w.header }
func (w *resetWriter) WriteHeader(int)     {}
func (w *resetWriter) Write(b []byte) (int, error) {
	w.given = b
	return 0, errors.New("stream closed")
}

// A buffer that can still be sent to a caller does not get the response of another agent.
func TestCopyBuffers_NotReusedWhileTheyAreSent(t *testing.T) {
	s := newStage(t, nameServer(t), options{})
	for name, handler := range map[string]http.Handler{"hub": s.hub, "agent": s.agent} {
		for range 20 { // whether a sync.Pool returns a buffer is not certain
			w := &resetWriter{header: http.Header{}}
			handler.ServeHTTP(w, requestFor("x"))
			if len(w.given) == 0 {
				t.Fatalf("%s: nothing was written", name)
			}
			before := slices.Clone(w.given)
			for range 3 {
				handler.ServeHTTP(httptest.NewRecorder(), requestFor("y"))
			}
			if !slices.Equal(w.given, before) {
				t.Fatalf("%s: the buffer of a response was reused while it was sent", name)
			}
		}
	}
}
