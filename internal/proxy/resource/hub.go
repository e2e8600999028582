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

// Hub is the half of the proxy to which Argo CD's cluster Secrets point. It is an http.Handler; NewServer puts it behind
// a listener with the limits that it needs.
type Hub struct {
	config  HubConfig
	proxy   httputil.ReverseProxy
	tunnels *http.Transport
	copies  *discoveryCache
	active  *requestTracker
	recalls atomic.Uint64 // counts Recheck and Forget
}

// NewHub returns a Hub. Close it.
func NewHub(config HubConfig) *Hub {
	config.setDefaults()
	h := &Hub{
		config: config,
		copies: newCopies(config.CopyPerAgent, config.CopyTotal),
		active: newActive(config.PerAgent, config.Total),
	}
	h.tunnels = newTunnels(&h.config)
	h.proxy = httputil.ReverseProxy{
		Rewrite:        h.rewrite,
		Transport:      &firstByteTransport{next: h.tunnels},
		ModifyResponse: h.modify,
		ErrorHandler:   h.fail,
		BufferPool:     buffers,
		ErrorLog:       errorLog(config.Log),
	}
	return h
}

// Close ends all requests and closes all tunnels.
func (h *Hub) Close() {
	h.active.cut(func(*hubRequest) bool { return true }, errShutdown)
	h.tunnels.CloseIdleConnections()
}

var errShutdown = unavailable("this principal is shutting down")

// Recheck asks once more who the callers of all requests under way are and ends those of whoever is refused by now.
// It is for the moment in which something was revoked.
func (h *Hub) Recheck() {
	h.recalls.Add(1)
	h.active.cut(func(c *hubRequest) bool {
		agent, status := h.identify(c.state, c.token)
		return status != nil || agent != c.agent
	}, accessRevoked)
}

var accessRevoked = refusal(http.StatusForbidden, "Forbidden", "access was revoked")

// Forget drops everything about an agent that is no longer registered, and ends its requests.
func (h *Hub) Forget(agent string) {
	h.recalls.Add(1)
	h.active.cut(func(c *hubRequest) bool { return c.agent == agent }, refusal(http.StatusForbidden, "Forbidden", "the agent was removed"))
	h.copies.forget(agent)
}

// Active is the number of requests under way, streams included.
func (h *Hub) Active() int { return h.active.count() }

// hubRequest is one request on its way. It travels in the request's context.
type hubRequest struct {
	agent   string
	request Request
	state   *tls.ConnectionState
	token   string
	begin   time.Time
	cancel  context.CancelCauseFunc

	document  bool
	patience  time.Duration // to the first byte; 0: any
	firstByte time.Duration
	code      int
	copied    bool
	span      *trace.Span

	reading atomic.Bool // the caller's body
	unblock func()      // ends a read of it
}

type callKey struct{}

func callOf(ctx context.Context) *hubRequest {
	c, _ := ctx.Value(callKey{}).(*hubRequest)
	return c
}

func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &hubRequest{begin: time.Now(), state: r.TLS}
	defer func() {
		if c.copied {
			c.span.SetString(trace.Remembered, "true")
		}
		answered(c.span, c.code)
		h.config.Observe(RequestResult{
			Agent: c.agent, Request: c.request, Code: c.code, FromCache: c.copied, FirstByte: c.firstByte,
			Total: time.Since(c.begin), Upgrade: c.code == http.StatusSwitchingProtocols,
		})
	}()
	refuse := func(s *Status) {
		c.code = s.Code
		h.config.Log.DebugContext(r.Context(), "request refused", "agent", c.agent, "method", r.Method, "path", r.URL.Path, "code", s.Code, "reason", s.Message)
		s.write(w)
	}

	query, status := checkRequest(r)
	if status != nil {
		w.Header().Set("Connection", "close") // whatever follows on this connection is not worth reading
		refuse(status)
		return
	}
	c.token = bearer(r.Header)
	recalls := h.recalls.Load()
	if c.agent, status = h.identify(r.TLS, c.token); status != nil {
		refuse(status)
		return
	}
	c.request = parse(r, query)
	c.span = traced(r.Context(), h.config.Trace, r, &c.request)
	c.span.SetString(trace.Agent, c.agent)
	c.document = c.request.Verb == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && isDocument(r.URL.Path)
	if !c.request.streams(query) && !wantsUpgrade(r.Header) {
		c.patience = h.config.FirstByte
		if c.document && h.copies.has(c.agent, r) {
			c.patience = h.config.Patience
		}
	}

	ctx, cancel := context.WithCancelCause(c.span.NewContext(context.WithValue(r.Context(), callKey{}, c)))
	defer cancel(nil)
	c.cancel = cancel
	if status := h.active.add(c); status != nil {
		refuse(status)
		return
	}
	defer h.active.remove(c)
	if h.recalls.Load() != recalls { // something was revoked before this request could be found among those under way
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
	defer stop() // before cancel: a connection that is fine is used again
	fullDuplex(w)
	h.proxy.ServeHTTP(&upgradeWriter{ResponseWriter: w, ctx: ctx}, r.WithContext(ctx))
}

// identify tells which agent a caller may reach.
func (h *Hub) identify(state *tls.ConnectionState, token string) (string, *Status) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return "", refusal(http.StatusUnauthorized, "Unauthorized", "a client certificate that names an agent is needed")
	}
	agent, err := h.config.Caller(state)
	_, unknown := errors.AsType[*UnknownAgentError](err)
	if shared := err == nil && agent == ""; shared || unknown && h.config.Token != nil && token != "" {
		if h.config.Token == nil || token == "" {
			return "", refusal(http.StatusUnauthorized, "Unauthorized", "the client certificate names no agent, and no token does")
		}
		agent, err = h.config.Token(state, token)
	}
	if err != nil {
		return "", refusal(http.StatusForbidden, "Forbidden", "access to the cluster is refused: "+err.Error())
	}
	if agent == "" {
		return "", refusal(http.StatusUnauthorized, "Unauthorized", "the token names no agent")
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
	stripIdentity(r.Out.Header)
	callOf(r.In.Context()).span.Inject(r.Out.Header)
	r.Out.URL.Scheme = "http" // inside the tunnel, which is inside mTLS
	r.Out.URL.Host = hostOf(callOf(r.In.Context()).agent)
	r.Out.Host = "kubernetes" // the Agent sets the real one
	if hasNoBody(r.In) && !acts(r.In, &callOf(r.In.Context()).request) {
		r.Out.Header.Del("Expect")
		return
	}
	// The body of a write waits until the Agent asks for it: see fresh. Where there is none, its end does.
	r.Out.Header.Set("Expect", "100-continue")
	if hasNoBody(r.In) {
		r.Out.Body, r.Out.ContentLength, r.Out.TransferEncoding = io.NopCloser(strings.NewReader("")), -1, []string{"chunked"}
	}
}

// acts tells a request that does something, even without a body: it deletes, or runs a command.
func acts(r *http.Request, q *Request) bool {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead || q.DryRun
	return !read || wantsUpgrade(r.Header)
}

func (h *Hub) modify(res *http.Response) error {
	c := callOf(res.Request.Context())
	c.code, c.firstByte = res.StatusCode, time.Since(c.begin)
	c.span.Event("answer begins")
	if location := res.Header.Get("Location"); location != "" && (!strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//")) {
		return fmt.Errorf("the answer leads elsewhere, to %q", location)
	}
	stripAnswer(res.Header)
	wholeBody(res)
	if c.document {
		h.copies.capture(c.agent, res)
	}
	return nil
}

// fail answers a request that got no answer from the agent.
func (h *Hub) fail(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	if cause := context.Cause(r.Context()); cause != nil {
		var cut *statusError
		if !errors.As(cause, &cut) { // the caller went away: nobody reads what we say
			c.code = 0
			panic(http.ErrAbortHandler)
		}
		err = cut
	}
	status := explain(c.agent, err)
	if c.document && status.Code > 500 && h.copies.serve(w, r, c.agent, status.Message) {
		c.code, c.copied = http.StatusOK, true
		return
	}
	c.code = status.Code
	h.config.Log.DebugContext(r.Context(), "request failed", "agent", c.agent, "method", r.Method, "path", r.URL.Path, "code", status.Code, "error", err)
	status.write(w)
}

// explain turns what went wrong between hub and agent into what a person can act on.
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
		return refusal(http.StatusForbidden, "Forbidden", unknown.Error())
	case errors.Is(err, errFirstByte):
		return tooLate(fmt.Sprintf("agent %s is connected but did not answer in time; the request may have been carried out", agent))
	case errors.Is(err, errDial):
		return tooLate(fmt.Sprintf("agent %s is connected but opened no tunnel in time; the request was not sent", agent))
	default:
		return badGateway(fmt.Sprintf("the connection to agent %s failed: %v", agent, err))
	}
}
