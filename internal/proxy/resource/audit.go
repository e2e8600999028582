package resource

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/audit"
)

// audited is what the audit log needs to know of a request.
type audited struct {
	log     *audit.Log
	agent   string // on the hub
	id      string
	caller  Caller
	class   class
	request *Request
	method  string

	impersonates string // user name of a ServiceAccount, or ""
}

// effectOf returns the class of any request, also of one that is not for a resource.
func effectOf(r *http.Request, q *Request) class {
	if q.Verb != "" {
		return classOf(r, q)
	}
	switch {
	case wantsUpgrade(r.Header):
		return classExec
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return classRead
	}
	return classWrite
}

// begun writes the line of an exec session that begins.
func (a *audited) begun(res *http.Response, app string) {
	if a.class == classExec && res.StatusCode == http.StatusSwitchingProtocols {
		r := a.record(app)
		r.Result = audit.Begun
		a.log.Write(r)
	}
}

// ended writes the line of a request that has an effect or was refused. Reads have none.
func (a *audited) ended(code int, app string, refused *Status) {
	forbidden := refused != nil && (refused.Code == http.StatusForbidden || refused.Code == http.StatusUnauthorized)
	if !forbidden && (a.class == classRead || a.class == classLogs) {
		return
	}
	r := a.record(app)
	if code > 0 {
		r.Code = strconv.Itoa(code)
	}
	switch {
	case forbidden:
		r.Result, r.Setting, r.Reason = audit.Refused, refused.setting, refused.Message
	case refused != nil:
		r.Result, r.Reason = audit.Failed, refused.Message
	case code == 0:
		r.Result, r.Reason = audit.Unknown, "the caller disconnected before the response"
	case code >= http.StatusBadRequest:
		r.Result = audit.Failed
	default:
		r.Result = audit.OK
	}
	a.log.Write(r)
}

func (a *audited) record(app string) audit.Record {
	q := a.request
	r := audit.Record{Agent: a.agent, Type: audit.Live, Action: q.Verb, Caller: a.caller.User, CallerFrom: a.caller.From, Impersonates: a.impersonates, Application: app, RequestID: a.id,
		Object: audit.Object{Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name}}
	if q.Verb == "" {
		r.Action = strings.ToLower(a.method)
	}
	if a.class == classExec {
		r.Type = audit.Exec
	}
	return r
}
