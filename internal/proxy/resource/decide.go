package resource

import (
	"context"
	"fmt"
	"mime"
	"net/http"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// decider applies a policy to requests.
type decider struct {
	policy *Policy
	apps   Applications
	// kindOf returns the kind of a resource, or "" if the API server does not serve it.
	kindOf func(ctx context.Context, group, version, resource string) (string, error)

	argocd     string // see AgentConfig.ArgoCD
	autonomous bool
}

// decide returns nil if a request is allowed. App is the Application on whose behalf it is allowed, if that is the reason.
func (d *decider) decide(r *http.Request, q *Request) (app string, denied *Status) {
	p := d.policy
	if p.Level == LevelNone {
		return "", forbidden(q, SettingLevel, "live access is disabled")
	}
	if q.Verb == "" {
		return "", d.decidePath(r, q)
	}
	class := classOf(r, q)
	if setting := p.switchedOff(class); setting != "" {
		return "", p.disabled(q, setting)
	}
	if q.Group == v1alpha1.Group && class != classRead {
		return "", forbidden(q, SettingWrites, "only users of the workload cluster can change its AgentPolicies")
	}
	mayCreate := p.NoCreate && class == classWrite && isApply(r)
	if p.Level == LevelAll && !mayCreate {
		return "", nil
	}
	app, belongs, err := d.belongs(r.Context(), q)
	if err != nil {
		return "", badGateway("the agent cannot resolve the resource: " + err.Error())
	}
	closed := d.protectedByAutonomy(q, class)
	switch {
	case belongs && class != classToken && !closed:
		return app, nil
	case mayCreate:
		return "", forbidden(q, SettingCreate, "an apply may create objects, which is disabled")
	case class == classToken:
		return "", forbidden(q, SettingLevel, fmt.Sprintf("tokens are issued only with level %s", LevelAll))
	case p.Level == LevelNamespaces && (p.inNamespaces(q) || q.isSelfReview()):
		return "", nil
	case closed:
		return "", forbidden(q, d.decidingSetting(), "the agent is autonomous, so Argo CD's objects on its cluster are read-only")
	case q.Verb == verbCreate && q.Subresource == "" && !q.isSelfReview():
		if app, ok := d.apps.HasNamespace(q.Namespace); ok && q.Namespace != "" && q.Namespace != d.argocd {
			return app, nil
		}
		return "", forbidden(q, d.decidingSetting(), "no Application has objects in this namespace")
	case q.Name == "":
		return "", forbidden(q, d.decidingSetting(), "only single objects of Applications are accessible, not lists")
	}
	return "", forbidden(q, d.decidingSetting(), "it belongs to no known Application")
}

// classOf returns the class of a request, considering its headers.
func classOf(r *http.Request, q *Request) class {
	class := q.class()
	if class != classLogs && q.Verb != verbWatch && wantsUpgrade(r.Header) {
		return classExec // streams of other APIs, such as consoles of virtual machines
	}
	return class
}

// protectedByAutonomy reports whether a request would change what an autonomous cluster deploys.
func (d *decider) protectedByAutonomy(q *Request, class class) bool {
	return d.autonomous && class != classRead && class != classLogs && (q.isArgoCDResource() || q.Namespace == d.argocd && d.argocd != "")
}

// isArgoCDResource reports whether the resource controls what Argo CD deploys.
func (q *Request) isArgoCDResource() bool {
	switch q.Resource {
	case "applications", "applicationsets", "appprojects":
		return q.Group == "argoproj.io"
	}
	return false
}

// decidingSetting returns the setting that denies the request.
func (d *decider) decidingSetting() string {
	if d.policy.Level == LevelNamespaces {
		return SettingNamespaces
	}
	return SettingLevel
}

// decidePath decides requests for paths that are not resources. Discovery is always allowed, other paths need LevelAll.
func (d *decider) decidePath(r *http.Request, q *Request) *Status {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case read && isDocument(r.URL.Path):
		return nil
	case d.policy.Level != LevelAll:
		return forbidden(q, SettingLevel, "it is neither an object nor discovery")
	case read && d.policy.NoReads:
		return d.policy.disabled(q, SettingReads)
	case !read && d.policy.NoWrites:
		return d.policy.disabled(q, SettingWrites)
	}
	return nil
}

func (p *Policy) disabled(q *Request, setting string) *Status {
	if by := p.DisabledBy[setting]; by != "" {
		return forbidden(q, setting, by)
	}
	return forbidden(q, setting, "this is disabled")
}

// belongs reports whether a request is for one object of an Application: by name, by a field selector, or its events.
func (d *decider) belongs(ctx context.Context, q *Request) (app string, ok bool, err error) {
	if q.isEvents() && q.Subject.Name != "" {
		app, ok = d.apps.OwnerOfSubject(q.Subject)
		return app, ok, nil
	}
	name := q.Name
	if name == "" {
		name = q.Selected
	}
	if name == "" {
		return "", false, nil
	}
	kind, err := d.kindOf(ctx, q.Group, q.Version, q.Resource)
	if err != nil || kind == "" {
		return "", false, err
	}
	app, ok = d.apps.OwnerOf(q.Group, kind, q.Namespace, name)
	return app, ok, nil
}

// isApply reports whether a request is a server-side apply, which can create an object.
func isApply(r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err != nil || kind == "application/apply-patch+yaml" || kind == "application/apply-patch+cbor"
}
