package resource

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/util/connlistener"
)

// Agent is the part of the proxy on the workload cluster. It is an http.Handler for requests from tunnels.
type Agent struct {
	config  AgentConfig
	proxy   httputil.ReverseProxy
	buffers copyBuffers
	kinds   *kindResolver
	masks   *masks
	tunnels *connlistener.Listener
	policy  atomic.Pointer[Policy]
}

// NewAgent returns an Agent. Run it.
func NewAgent(config AgentConfig) (*Agent, error) {
	if err := config.setDefaults(); err != nil {
		return nil, err
	}
	a := &Agent{
		config:  config,
		kinds:   newKindResolver(config.Server),
		masks:   &masks{key: config.MaskKey},
		tunnels: connlistener.New(),
	}
	a.policy.Store(&config.Policy)
	a.proxy = httputil.ReverseProxy{
		Rewrite:        a.rewrite,
		Transport:      &transportSelector{server: config.Server},
		ModifyResponse: a.modify,
		ErrorHandler:   a.fail,
		ErrorLog:       errorLog(config.Log),
	}
	return a, nil
}

// SetPolicy replaces the policy for new requests.
func (a *Agent) SetPolicy(policy Policy) error {
	if err := policy.Check(); err != nil {
		return err
	}
	a.policy.Store(&policy)
	return nil
}

// agentRequest is the state of one request. It is in the request's context.
type agentRequest struct {
	request Request
	begin   time.Time
	first   time.Duration
	code    int
	app     string
	setting string
	masked  bool
	refused *Status
	audited audited
	as      http.Header // identity for the API server
	span    *trace.Span
	cancel  context.CancelFunc
}

type agentRequestKey struct{}

func agentRequestFrom(ctx context.Context) *agentRequest {
	v, _ := ctx.Value(agentRequestKey{}).(*agentRequest)
	return v
}

func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &agentRequest{begin: time.Now()}
	v.audited = audited{log: a.config.Audit, request: &v.request, method: r.Method}
	v.audited.caller, v.audited.id = readCaller(r.Header)
	defer func() {
		v.audited.ended(v.code, v.app, v.refused)
		v.span.SetString(trace.Application, v.app)
		v.span.SetString(trace.RefusedBy, v.setting)
		endSpan(v.span, v.code)
		a.config.Observe(RequestResult{
			Request: v.request, Code: v.code, FirstByte: v.first, Setting: v.setting,
		})
	}()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), agentRequestKey{}, v))
	defer cancel()
	v.cancel = cancel
	r = r.WithContext(ctx)
	if status := a.check(v, r); status != nil {
		v.code, v.setting, v.refused = status.Code, status.setting, status
		a.config.Log.InfoContext(ctx, "Request denied", "request", v.request.String(), "path", r.URL.Path, "code", status.Code, "reason", status.Message)
		status.write(w)
		return
	}
	if v.request.Verb != "" && v.request.class() != classRead {
		a.config.Log.InfoContext(ctx, "Request from the hub", "request", v.request.String(), "application", v.app)
	}
	fullDuplex(w)
	v.span.Event("allowed")
	a.buffers.forward(&a.proxy, &upgradeWriter{ResponseWriter: w, ctx: ctx}, r)
}

// check decides whether a request is executed, and prepares it.
func (a *Agent) check(v *agentRequest, r *http.Request) *Status {
	query, status := checkRequest(r)
	if status != nil {
		return status
	}
	if v.audited.impersonates, r.URL.Path, status = cutImpersonation(r.URL.Path); status != nil {
		return status
	}
	v.request = parse(r, query)
	v.audited.class = effectOf(r, &v.request)
	v.span = startSpan(r.Context(), a.config.Trace, r, &v.request)
	a.mapName(v, r)
	policy := a.policy.Load()
	decider := decider{policy: policy, apps: a.config.Apps, kindOf: a.kinds.of, argocd: a.config.ArgoCD, autonomous: a.config.Autonomous}
	if v.app, status = decider.decide(r, &v.request); status != nil {
		return status
	}
	if user := v.audited.impersonates; user != "" {
		app := v.app
		if app == "" && v.request.Verb != "" { // the policy permits it for another reason
			var err error
			if app, _, err = decider.belongs(r.Context(), &v.request); err != nil {
				return badGateway("the agent cannot resolve the resource: " + err.Error())
			}
		}
		if status := a.mayImpersonate(r.Context(), app, user); status != nil {
			return status
		}
	}
	if v.as, status = a.identity(r.Context(), v); status != nil {
		return status
	}
	stripIdentity(r.Header)
	if status := rejectStaleWrite(r, a.config.MaxWriteAge); status != nil {
		return status
	}
	v.masked = policy.Secrets != SecretsPlain && v.request.Group == "" && v.request.Resource == "secrets"
	if v.masked {
		return a.masks.prepare(r)
	}
	return nil
}

// mapName replaces the hub's name of an object by the name on this cluster.
func (a *Agent) mapName(v *agentRequest, r *http.Request) {
	q := &v.request
	if a.config.LocalName == nil || q.Name == "" {
		return
	}
	namespace, name := a.config.LocalName(q.Group, q.Resource, q.Namespace, q.Name)
	if namespace == q.Namespace && name == q.Name {
		return
	}
	q.Namespace, q.Name = namespace, name
	r.URL.Path = q.path()
}

// path returns the URL path of a request with a name.
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
	v := agentRequestFrom(r.In.Context())
	r.Out.Header.Set(auditIDHeader, v.audited.id)
	maps.Copy(r.Out.Header, v.as)
	v.span.Inject(r.Out.Header)
}

func (a *Agent) modify(res *http.Response) error {
	v := agentRequestFrom(res.Request.Context())
	v.code, v.first = res.StatusCode, time.Since(v.begin)
	v.span.Event("first byte")
	v.audited.begun(res, v.app)
	keepLastBytes(res, v.cancel)
	if v.masked {
		return a.masks.maskResponse(res)
	}
	return nil
}

// fail responds to a request that got no response from the API server.
func (a *Agent) fail(w http.ResponseWriter, r *http.Request, err error) {
	v := agentRequestFrom(r.Context())
	if r.Context().Err() != nil { // the hub gave up
		v.code = 0
		panic(http.ErrAbortHandler)
	}
	status := badGateway(fmt.Sprintf("agent %s got no response from its API server: %v", a.config.Name, err))
	v.code = status.Code
	a.config.Log.WarnContext(r.Context(), "No response from the API server", "request", v.request.String(), "error", err)
	status.write(w)
}

// transportSelector selects the transport of a request. Large and long responses have their own connection, so that a
// small response does not wait behind a list of 50 MB. HTTP/2 also costs a quarter more per byte.
type transportSelector struct{ server APIServer }

func (c *transportSelector) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil { // canceled before it was sent
		return nil, err
	}
	if v := agentRequestFrom(r.Context()); wantsUpgrade(r.Header) || v != nil && v.request.isBulk() {
		return c.server.Upgrades.RoundTrip(r)
	}
	return c.server.Common.RoundTrip(r)
}
