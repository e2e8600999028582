package resource

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Agent is the half of the proxy in front of the API server of a workload cluster. It is an http.Handler for what
// arrives through tunnels; Serve takes their connections.
type Agent struct {
	config AgentConfig
	policy atomic.Pointer[Policy]
	proxy  httputil.ReverseProxy
	kinds  *kindResolver
	masks  *masks
	door   *tunnelListener
}

// NewAgent returns an Agent. Run it.
func NewAgent(config AgentConfig) (*Agent, error) {
	if err := config.setDefaults(); err != nil {
		return nil, err
	}
	a := &Agent{
		config: config,
		kinds:  newKinds(config.Server),
		masks:  &masks{key: config.MaskKey},
		door:   newDoor(),
	}
	a.policy.Store(&config.Policy)
	a.proxy = httputil.ReverseProxy{
		Rewrite:        a.rewrite,
		Transport:      &transportSelector{server: config.Server},
		ModifyResponse: a.modify,
		ErrorHandler:   a.fail,
		BufferPool:     buffers,
		ErrorLog:       errorLog(config.Log),
	}
	return a, nil
}

// SetPolicy puts another policy in force for requests from now on.
func (a *Agent) SetPolicy(policy Policy) error {
	if err := policy.Check(); err != nil {
		return err
	}
	a.policy.Store(&policy)
	return nil
}

// agentRequest is one request at the Agent. It travels in the request's context.
type agentRequest struct {
	request Request
	begin   time.Time
	first   time.Duration
	code    int
	app     string
	setting string
	masked  bool
	span    *trace.Span
}

type visitKey struct{}

func visitOf(ctx context.Context) *agentRequest {
	v, _ := ctx.Value(visitKey{}).(*agentRequest)
	return v
}

func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &agentRequest{begin: time.Now()}
	defer func() {
		v.span.SetString(trace.Application, v.app)
		v.span.SetString(trace.RefusedBy, v.setting)
		answered(v.span, v.code)
		a.config.Observe(RequestResult{
			Agent: a.config.Name, Request: v.request, Code: v.code, FirstByte: v.first, Total: time.Since(v.begin),
			Upgrade: v.code == http.StatusSwitchingProtocols, Setting: v.setting, Application: v.app,
		})
	}()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), visitKey{}, v))
	defer cancel()
	r = r.WithContext(ctx)
	if status := a.admit(v, r); status != nil {
		v.code, v.setting = status.Code, status.setting
		a.config.Log.InfoContext(ctx, "request refused", "request", v.request.String(), "path", r.URL.Path, "code", status.Code, "reason", status.Message)
		status.write(w)
		return
	}
	if v.request.Verb != "" && v.request.class() != classRead {
		a.config.Log.InfoContext(ctx, "request from the hub", "request", v.request.String(), "application", v.app)
	}
	fullDuplex(w)
	v.span.Event("allowed")
	a.proxy.ServeHTTP(&upgradeWriter{ResponseWriter: w, ctx: ctx}, r)
}

// admit is all that a request has to pass before it is carried out.
func (a *Agent) admit(v *agentRequest, r *http.Request) *Status {
	query, status := checkRequest(r)
	if status != nil {
		return status
	}
	v.request = parse(r, query)
	v.span = traced(r.Context(), a.config.Trace, r, &v.request)
	a.localise(v, r)
	policy := a.policy.Load()
	decider := decider{policy: policy, apps: a.config.Apps, kindOf: a.kinds.of, argocd: a.config.ArgoCD, autonomous: a.config.Autonomous}
	if v.app, status = decider.decide(r, &v.request); status != nil {
		return status
	}
	stripIdentity(r.Header)
	if status := rejectStaleWrite(r, a.config.Fresh); status != nil {
		return status
	}
	v.masked = policy.Secrets != SecretsPlain && v.request.Group == "" && v.request.Resource == "secrets"
	if v.masked {
		return a.masks.prepare(r)
	}
	return nil
}

// localise replaces the hub's name of an object by the local one.
func (a *Agent) localise(v *agentRequest, r *http.Request) {
	q := &v.request
	if a.config.Local == nil || q.Name == "" {
		return
	}
	namespace, name := a.config.Local(q.Group, q.Resource, q.Namespace, q.Name)
	if namespace == q.Namespace && name == q.Name {
		return
	}
	q.Namespace, q.Name = namespace, name
	r.URL.Path = q.path()
}

// path is where the API server has what a request with a name asks for.
func (q *Request) path() string {
	parts := []string{"", "api", q.Version}
	if q.Group != "" {
		parts = []string{"", "apis", q.Group, q.Version}
	}
	if q.Namespace != "" {
		parts = append(parts, "namespaces", q.Namespace)
	}
	parts = append(parts, q.Resource, q.Name)
	for _, more := range []string{q.Subresource, q.Rest} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(parts, "/")
}

func (a *Agent) rewrite(r *httputil.ProxyRequest) {
	server := a.config.Server.URL
	r.Out.URL.Scheme, r.Out.URL.Host = server.Scheme, server.Host
	r.Out.URL.Path = strings.TrimSuffix(server.Path, "/") + r.In.URL.Path
	r.Out.Host = server.Host
	r.Out.Header.Del("Expect")
	visitOf(r.In.Context()).span.Inject(r.Out.Header)
}

func (a *Agent) modify(res *http.Response) error {
	v := visitOf(res.Request.Context())
	v.code, v.first = res.StatusCode, time.Since(v.begin)
	v.span.Event("answer begins")
	wholeBody(res)
	if v.masked {
		return a.masks.maskResponse(res)
	}
	return nil
}

// fail answers a request that got no answer from the API server.
func (a *Agent) fail(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r.Context())
	if r.Context().Err() != nil { // the hub gave up
		v.code = 0
		panic(http.ErrAbortHandler)
	}
	status := badGateway(fmt.Sprintf("agent %s got no answer from its API server: %v", a.config.Name, err))
	v.code = status.Code
	a.config.Log.WarnContext(r.Context(), "no answer from the API server", "request", v.request.String(), "error", err)
	status.write(w)
}

// transportSelector takes the transport that a request needs. What is large or long has a connection of its own: on one that all share
// a small answer would wait behind a list of 50 MB, and HTTP/2 costs a quarter more per byte.
type transportSelector struct{ server APIServer }

func (c *transportSelector) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil { // given up on before it was sent
		return nil, err
	}
	if v := visitOf(r.Context()); wantsUpgrade(r.Header) || v != nil && v.request.isBulk() {
		return c.server.Upgrades.RoundTrip(r)
	}
	return c.server.Common.RoundTrip(r)
}
