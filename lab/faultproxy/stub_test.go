package faultproxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// stub is a small API server: it echoes ConfigMaps, streams events of a test to its watches, and accepts upgrades.
type stub struct {
	*httptest.Server
	t       *testing.T
	watches chan chan<- watch.Event // senders of each watch, in order of their start
}

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{t: t, watches: make(chan chan<- watch.Event, 10)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.35.4"}`)
	})
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/configmaps", s.watch)
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/configmaps/{name}", s.get)
	mux.HandleFunc("PUT /api/v1/namespaces/{ns}/configmaps/{name}", s.echo)
	mux.HandleFunc("POST /api/v1/namespaces/{ns}/configmaps", s.echo)
	mux.HandleFunc("/api/v1/namespaces/{ns}/pods/{name}/exec", s.upgrade)
	s.Server = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *stub) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// front returns a proxy in front of the stub with the stub's certificate, which is valid for 127.0.0.1.
func (s *stub) front() *API {
	s.t.Helper()
	api, err := NewAPI(APIOptions{
		Target: s.URL, TargetCA: s.ca(), Certificate: &s.TLS.Certificates[0], ErrorLog: s.t.Output(),
	})
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, api.Close()) })
	return api
}

// client returns a client-go client through the proxy.
func (s *stub) client(api *API, contentType string) kubernetes.Interface {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: api.URL(), BearerToken: "s3cr3t", TLSClientConfig: rest.TLSClientConfig{CAData: s.ca()},
		ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
		QPS:           -1,
	})
	must(s.t, err)
	return client
}

func (s *stub) get(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name")},
		Data:       map[string]string{"authorization": r.Header.Get("Authorization"), "proto": r.Proto, "query": r.URL.RawQuery},
	})
}

func (s *stub) echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	_, _ = io.Copy(w, r.Body)
}

// watch streams events in the encoding that the caller accepts.
func (s *stub) watch(w http.ResponseWriter, r *http.Request) {
	mediaType, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		http.Error(w, "unknown media type "+mediaType, http.StatusNotAcceptable)
		return
	}
	w.Header().Set("Content-Type", mediaType+";stream=watch")
	_ = http.NewResponseController(w).Flush()
	v1 := schema.GroupVersion{Version: "v1"}
	encoder := restwatch.NewEncoder(
		streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(info.StreamSerializer, v1)),
		scheme.Codecs.EncoderForVersion(info.Serializer, v1))
	events := make(chan watch.Event)
	s.watches <- events
	for {
		select {
		case event := <-events:
			if err := encoder.Encode(&event); err != nil {
				s.t.Errorf("encode an event: %v", err)
			}
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// upgrade echoes data after the requested upgrade.
func (s *stub) upgrade(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.t.Errorf("hijack: %v", err)
		return
	}
	defer conn.Close()
	fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_ = buf.Flush()
	_, _ = io.Copy(conn, buf)
}

// upgraded opens an upgraded connection through the proxy.
func (s *stub) upgraded(api *API, method, protocol string) (*tls.Conn, *bufio.Reader) {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	conn, err := tls.Dial("tcp", api.Addr(), &tls.Config{RootCAs: roots})
	must(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "%s /api/v1/namespaces/default/pods/p/exec?command=sh HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", method, protocol)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // after the upgrade the connection is the body
	must(s.t, err)
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != protocol {
		s.t.Fatalf("upgrade to %s: %s", protocol, resp.Status)
	}
	return conn, r
}
