package resource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Hub is the part of the proxy on the hub, the server in Argo CD's cluster Secrets. It is an http.Handler. NewServer
// returns a server with the limits that it needs.
type Hub struct {
	config      HubConfig
	proxy       httputil.ReverseProxy
	buffers     copyBuffers
	tunnels     *http.Transport
	discovery   *discoveryCache
	active      *requestTracker
	revocations atomic.Uint64 // counts Recheck and Forget
}

// NewHub returns a Hub. Close it.
func NewHub(config HubConfig) *Hub {
	config.setDefaults()
	h := &Hub{
		config:    config,
		discovery: &discoveryCache{documents: map[documentKey]document{}},
		active:    newRequestTracker(config.PerAgent),
	}
	h.tunnels = newTunnels(&h.config)
	h.proxy = httputil.ReverseProxy{
		Rewrite:        h.rewrite,
		Transport:      &firstByteTransport{next: h.tunnels},
		ModifyResponse: h.modify,
		ErrorHandler:   h.fail,
		ErrorLog:       errorLog(config.Log),
	}
	return h
}

// Close ends all requests and closes all tunnels.
func (h *Hub) Close() {
	h.active.cancel(func(*hubRequest) bool { return true }, errShutdown)
	h.tunnels.CloseIdleConnections()
}

var errShutdown = unavailable("this principal is shutting down")

// Recheck authenticates the callers of all requests in flight again and cancels denied ones. Call it after a revocation.
func (h *Hub) Recheck() {
	h.revocations.Add(1)
	h.active.cancel(func(c *hubRequest) bool {
		agent, status := h.identify(c.state, c.token)
		return status != nil || agent != c.agent
	}, accessRevoked)
}

var accessRevoked = newStatus(http.StatusForbidden, "Forbidden", "access was revoked")

// Forget drops the state of an agent that is no longer registered, and cancels its requests.
func (h *Hub) Forget(agent string) {
	h.revocations.Add(1)
	h.active.cancel(func(c *hubRequest) bool { return c.agent == agent }, newStatus(http.StatusForbidden, "Forbidden", "the agent was removed"))
	h.discovery.forget(agent)
}

// Active returns the number of requests in flight, including streams.
func (h *Hub) Active() int { return h.active.count() }

// hubRequest is the state of one request. It is in the request's context.
type hubRequest struct {
	agent   string
	request Request
	state   *tls.ConnectionState
	token   string
	begin   time.Time
	cancel  context.CancelCauseFunc

	document         bool          // one that is cached
	firstByteTimeout time.Duration // If 0, there is none.
	firstByte        time.Duration
	code             int
	fromCache        bool
	refused          *Status // by the Hub
	audited          audited
	path             string // as the caller sent it
	span             *trace.Span

	reading atomic.Bool // the caller's body
	unblock func()      // ends a pending read of the body
}

type hubRequestKey struct{}

func hubRequestFrom(ctx context.Context) *hubRequest {
	c, _ := ctx.Value(hubRequestKey{}).(*hubRequest)
	return c
}

func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &hubRequest{begin: time.Now(), state: r.TLS}
	c.audited = audited{log: h.config.Audit, id: newRequestID(), request: &c.request, method: r.Method}
	defer func() {
		c.audited.ended(c.code, "", c.refused)
		if c.fromCache {
			c.span.SetString(trace.FromCache, "true")
		}
		endSpan(c.span, c.code)
		h.config.Observe(RequestResult{
			Request: c.request, Code: c.code, FromCache: c.fromCache, FirstByte: c.firstByte,
		})
	}()
	refuse := func(s *Status) {
		c.code, c.refused = s.Code, s
		h.config.Log.DebugContext(r.Context(), "Request denied", "agent", c.agent, "method", r.Method, "path", r.URL.Path, "code", s.Code, "reason", s.Message)
		s.write(w)
	}

	query, status := checkRequest(r)
	if status != nil {
		w.Header().Set("Connection", "close") // do not read further requests
		refuse(status)
		return
	}
	c.token, c.path = bearer(r.Header), r.URL.Path
	c.request = parse(r, query)
	c.audited.class = effectOf(r, &c.request)
	recalls := h.revocations.Load()
	if c.agent, status = h.identify(r.TLS, c.token); status != nil {
		refuse(status)
		return
	}
	c.audited.agent, c.audited.caller = c.agent, h.config.User(r.TLS)
	if strings.HasPrefix(c.path, impersonatePrefix) {
		refuse(newStatus(http.StatusNotFound, "NotFound", "the path is reserved"))
		return
	}
	if c.audited.impersonates, status = impersonated(r.Header); status != nil {
		refuse(status)
		return
	}
	c.span = startSpan(r.Context(), h.config.Trace, r, &c.request)
	c.span.SetString(trace.Agent, c.agent)
	c.document = documentPath(r) != ""
	if !c.request.streams(query) && !wantsUpgrade(r.Header) {
		c.firstByteTimeout = h.config.FirstByte
		if _, known := h.discovery.find(c.agent, r); known {
			c.firstByteTimeout = h.config.CachedFirstByte
		}
	}

	ctx, cancel := context.WithCancelCause(c.span.NewContext(context.WithValue(r.Context(), hubRequestKey{}, c)))
	defer cancel(nil)
	c.cancel = cancel
	if status := h.active.add(c); status != nil {
		refuse(status)
		return
	}
	defer h.active.remove(c)
	if h.revocations.Load() != recalls { // a revocation may have missed this request
		if agent, status := h.identify(r.TLS, c.token); status != nil || agent != c.agent {
			refuse(accessRevoked)
			return
		}
	}
	c.unblock = func() {
		if c.reading.Load() {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		}
	}
	stop := context.AfterFunc(ctx, c.unblock)
	defer stop() // before cancel, so that the connection can be reused
	fullDuplex(w)
	h.buffers.forward(&h.proxy, &upgradeWriter{ResponseWriter: w, ctx: ctx}, r.WithContext(ctx))
}

// identify returns the agent that a caller may access.
func (h *Hub) identify(state *tls.ConnectionState, token string) (string, *Status) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return "", newStatus(http.StatusUnauthorized, "Unauthorized", "a client certificate of an agent is required")
	}
	agent, err := h.config.Caller(state)
	_, unknown := errors.AsType[*UnknownAgentError](err)
	if shared := err == nil && agent == ""; shared || unknown && h.config.Token != nil && token != "" {
		if h.config.Token == nil || token == "" {
			return "", newStatus(http.StatusUnauthorized, "Unauthorized", "neither the client certificate nor a token names an agent")
		}
		agent, err = h.config.Token(state, token)
	}
	if err != nil {
		return "", newStatus(http.StatusForbidden, "Forbidden", "access to the cluster is denied: "+err.Error())
	}
	if agent == "" {
		return "", newStatus(http.StatusUnauthorized, "Unauthorized", "the token names no agent")
	}
	return agent, nil
}

func bearer(header http.Header) string {
	scheme, token, _ := strings.Cut(header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (h *Hub) rewrite(r *httputil.ProxyRequest) {
	c := hubRequestFrom(r.In.Context())
	stripIdentity(r.Out.Header)
	setCaller(r.Out.Header, c.audited.caller, c.audited.id)
	if user := c.audited.impersonates; user != "" {
		r.Out.URL.Path = impersonatePrefix + user + r.In.URL.Path
	}
	c.span.Inject(r.Out.Header)
	r.Out.URL.Scheme = "http" // inside the tunnel, which is inside mTLS
	r.Out.URL.Host = hostOf(c.agent)
	r.Out.Host = "kubernetes" // the Agent sets the real one
	if hasNoBody(r.In) && !hasEffect(r.In, &c.request) {
		r.Out.Header.Del("Expect")
		return
	}
	// The Agent requests the body of a write when it is ready: see rejectStaleWrite. An empty body is sent as chunked.
	r.Out.Header.Set("Expect", "100-continue")
	if hasNoBody(r.In) {
		r.Out.Body, r.Out.ContentLength, r.Out.TransferEncoding = io.NopCloser(strings.NewReader("")), -1, []string{"chunked"}
	}
}

// hasEffect reports whether a request changes something or runs a command.
func hasEffect(r *http.Request, q *Request) bool {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead || q.DryRun
	return !read || wantsUpgrade(r.Header)
}

func (h *Hub) modify(res *http.Response) error {
	c := hubRequestFrom(res.Request.Context())
	c.code, c.firstByte = res.StatusCode, time.Since(c.begin)
	c.span.Event("first byte")
	if location := res.Header.Get("Location"); location != "" && (!strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//")) {
		return fmt.Errorf("the response redirects to another host: %q", location)
	}
	stripResponse(res.Header)
	keepLastBytes(res, func() { c.cancel(nil) })
	c.audited.begun(res, "")
	if c.document && c.audited.impersonates == "" {
		return h.discovery.capture(c.agent, res)
	}
	return nil
}

// fail responds to a request that got no response from the agent.
func (h *Hub) fail(w http.ResponseWriter, r *http.Request, err error) {
	c := hubRequestFrom(r.Context())
	r.URL.Path = c.path
	if cause := context.Cause(r.Context()); cause != nil {
		var cut *statusError
		if !errors.As(cause, &cut) { // the caller disconnected
			c.code = 0
			panic(http.ErrAbortHandler)
		}
		err = cut
	}
	status := explain(c.agent, err)
	if c.document && status.Code > 500 && h.discovery.serve(w, r, c.agent, status.Message) {
		c.code, c.fromCache = http.StatusOK, true
		return
	}
	c.code = status.Code
	h.config.Log.DebugContext(r.Context(), "Request failed", "agent", c.agent, "method", r.Method, "path", r.URL.Path, "code", status.Code, "error", err)
	status.write(w)
}

// explain converts an error between hub and agent into a Status for the user.
func explain(agent string, err error) *Status {
	var (
		cut     *statusError
		away    *NotConnectedError
		unknown *UnknownAgentError
	)
	switch {
	case errors.As(err, &cut):
		return cut.status
	case errors.As(err, &away):
		return unavailable(away.Error())
	case errors.As(err, &unknown):
		return newStatus(http.StatusForbidden, "Forbidden", unknown.Error())
	case errors.Is(err, errFirstByte):
		return gatewayTimeout(fmt.Sprintf("agent %s is connected but did not respond in time; the request may have been executed", agent))
	case errors.Is(err, errDial):
		return gatewayTimeout(fmt.Sprintf("agent %s is connected but opened no tunnel in time; the request was not sent", agent))
	default:
		return badGateway(fmt.Sprintf("the connection to agent %s failed: %v", agent, err))
	}
}
