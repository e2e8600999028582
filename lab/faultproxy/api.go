package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIOptions configures an API proxy.
type APIOptions struct {
	// Target is the URL of the API server.
	Target string
	// TargetCA has the PEM certificates of the API server's CA. The proxy uses no client certificate, so that the
	// tokens of its callers are effective.
	TargetCA []byte
	// Certificate is the certificate of the proxy. If nil, it serves plain HTTP.
	Certificate *tls.Certificate
	// ErrorLog receives errors outside of responses. If nil, they are discarded.
	ErrorLog io.Writer
}

// API is a proxy in front of a Kubernetes API server.
type API struct {
	scheme    string
	listener  net.Listener
	http      *http.Server
	transport *upgradeTransport
	cancel    context.CancelFunc
	served    chan error
	work      sync.WaitGroup // requests, and the readers of watches

	mu      sync.Mutex
	closed  bool
	faults  []*Fault
	watches map[*watchBody]Request
	counts  map[Request]int
	changed chan struct{} // closed and replaced when a counter changes
}

// NewAPI starts a proxy on a free loopback port.
func NewAPI(opts APIOptions) (*API, error) {
	target, err := url.Parse(opts.Target)
	if err == nil && target.Host == "" {
		err = errors.New("no host in it")
	}
	if err != nil {
		return nil, fmt.Errorf("API proxy: target %q: give the API server's URL, such as https://127.0.0.1:6443: %w", opts.Target, err)
	}
	roots := x509.NewCertPool()
	if len(opts.TargetCA) > 0 && !roots.AppendCertsFromPEM(opts.TargetCA) {
		return nil, errors.New("API proxy: TargetCA holds no PEM certificate")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("API proxy: %w", err)
	}
	errorLog := log.New(io.Discard, "", 0)
	if opts.ErrorLog != nil {
		errorLog = log.New(opts.ErrorLog, "faultproxy: ", log.LstdFlags)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &API{
		scheme: "http", listener: listener, cancel: cancel, served: make(chan error, 1),
		transport: newUpgradeTransport(roots),
		watches:   map[*watchBody]Request{}, counts: map[Request]int{}, changed: make(chan struct{}),
	}
	a.http = &http.Server{
		Handler:           a.handler(target, errorLog),
		ErrorLog:          errorLog,
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	serve := func() error { return a.http.Serve(listener) }
	if opts.Certificate != nil {
		a.scheme = "https"
		a.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*opts.Certificate}, MinVersion: tls.VersionTLS12}
		serve = func() error { return a.http.ServeTLS(listener, "", "") }
	}
	go func() { a.served <- serve() }()
	return a, nil
}

// Addr returns the address of the listener, host:port.
func (a *API) Addr() string { return a.listener.Addr().String() }

// URL returns the server URL for a kubeconfig.
func (a *API) URL() string { return a.scheme + "://" + a.Addr() }

// Close ends all requests and waits for them.
func (a *API) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	err := a.http.Close()
	a.work.Wait()
	a.transport.CloseIdleConnections()
	if serveErr := <-a.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	a.served <- http.ErrServerClosed // so that a second Close returns as well
	if err != nil {
		return fmt.Errorf("close the API proxy: %w", err)
	}
	return nil
}

// requestKey is the context key of the state that the handler passes to modifyResponse.
type requestKey struct{}

type known struct {
	Request
	watch *Action // ending of the watch, if a rule sets it
}

func (a *API) handler(target *url.URL, errorLog *log.Logger) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      a.transport,
		FlushInterval:  -1, // forward events and log lines immediately
		ErrorLog:       errorLog,
		ModifyResponse: a.modifyResponse,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			// The API server is unreachable.
			if r.Context().Err() == nil {
				errorLog.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			panic(http.ErrAbortHandler)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := parseRequest(r)
		if !a.begin(req) {
			panic(http.ErrAbortHandler)
		}
		defer a.work.Done()
		watch, answered := a.meetFaults(w, r, req)
		if !answered {
			ctx := context.WithValue(r.Context(), requestKey{}, known{Request: req, watch: watch})
			proxy.ServeHTTP(&upgradeWriter{ResponseWriter: w, ctx: ctx}, r.WithContext(ctx))
		}
	})
}

// begin counts a started request. It returns false if the proxy is closing.
func (a *API) begin(req Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.work.Add(1)
	a.counts[req]++
	a.notify()
	return true
}

// meetFaults applies all matching faults to the request.
func (a *API) meetFaults(w http.ResponseWriter, r *http.Request, req Request) (watch *Action, answered bool) {
	a.mu.Lock()
	faults := slices.Clone(a.faults)
	a.mu.Unlock()
	for _, f := range faults {
		if !f.take(req) {
			continue
		}
		switch do := &f.rule.Do; {
		case do.answer != nil:
			writeStatus(w, do.answer(req))
			return nil, true
		case do.abort:
			panic(http.ErrAbortHandler)
		case do.watch != nil:
			watch = do
		case do.hold:
			waitFor(r.Context(), f.removed)
		case do.delay > 0:
			timer := time.NewTimer(do.delay)
			waitFor(r.Context(), timer.C)
			timer.Stop()
		}
	}
	return watch, false
}

// waitFor returns when c is ready. If the caller cancels first, the request ends.
func waitFor[T any](ctx context.Context, c <-chan T) {
	select {
	case <-c:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // fails only if the caller has disconnected
}
