package resource

import (
	"context"
	"fmt"
	"mime"
	"net/http"
)

// decider applies a policy to requests.
type decider struct {
	policy *Policy
	apps   Applications
	// kindOf names the kind of a resource; empty if the API server does not know it.
	kindOf func(ctx context.Context, group, version, resource string) (string, error)

	argocd     string // see AgentConfig.ArgoCD
	autonomous bool
}

// decide returns the Application on whose behalf a request is allowed, if that is the reason, or the refusal.
func (d *decider) decide(r *http.Request, q *Request) (app string, refused *Status) {
	p := d.policy
	if p.Level == LevelNone {
		return "", forbidden(q, SettingLevel, "live access is switched off")
	}
	if q.Verb == "" {
		return "", d.decidePath(r, q)
	}
	class := classOf(r, q)
	if setting := p.switchedOff(class); setting != "" {
		return "", forbidden(q, setting, "this is switched off")
	}
	mayCreate := p.NoCreate && class == classWrite && isApply(r)
	if p.Level == LevelAll && !mayCreate {
		return "", nil
	}
	app, belongs, err := d.belongs(r.Context(), q)
	if err != nil {
		return "", badGateway("the agent cannot tell what is asked for: " + err.Error())
	}
	closed := d.closed(q, class)
	switch {
	case belongs && class != classToken && !closed:
		return app, nil
	case mayCreate:
		return "", forbidden(q, SettingCreate, "an apply may create, which is switched off")
	case class == classToken:
		return "", forbidden(q, SettingLevel, fmt.Sprintf("tokens are issued only where it is %s", LevelAll))
	case p.Level == LevelNamespaces && (p.inNamespaces(q) || q.isSelfReview()):
		return "", nil
	case closed:
		return "", forbidden(q, d.decides(), "this cluster decides itself what it deploys, so what Argo CD works by is only shown")
	case q.Verb == verbCreate && q.Subresource == "" && !q.isSelfReview():
		if app, ok := d.apps.HasNamespace(q.Namespace); ok && q.Namespace != "" && q.Namespace != d.argocd {
			return app, nil
		}
		return "", forbidden(q, d.decides(), "no Application has objects in this namespace")
	case q.Name == "":
		return "", forbidden(q, d.decides(), "only single objects of Applications are open, not whole lists")
	}
	return "", forbidden(q, d.decides(), "it belongs to no Application that the agent knows")
}

// classOf is the class of a request with its headers.
func classOf(r *http.Request, q *Request) class {
	class := q.class()
	if class != classLogs && q.Verb != verbWatch && wantsUpgrade(r.Header) {
		return classExec // the likes of exec, of other APIs: consoles of virtual machines
	}
	return class
}

// closed tells that a request would change what an autonomous cluster deploys, or by whose rights.
func (d *decider) closed(q *Request, class class) bool {
	return d.autonomous && class != classRead && class != classLogs && (q.isArgoCDs() || q.Namespace == d.argocd && d.argocd != "")
}

// isArgoCDs tells what says to Argo CD what to deploy.
func (q *Request) isArgoCDs() bool {
	switch q.Resource {
	case "applications", "applicationsets", "appprojects":
		return q.Group == "argoproj.io"
	}
	return false
}

// decides is the setting that would have to be another one.
func (d *decider) decides() string {
	if d.policy.Level == LevelNamespaces {
		return SettingNamespaces
	}
	return SettingLevel
}

// decidePath is about requests for no resource: documents are open to all, other paths are for who may do everything.
func (d *decider) decidePath(r *http.Request, q *Request) *Status {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case read && isDocument(r.URL.Path):
		return nil
	case d.policy.Level != LevelAll:
		return forbidden(q, SettingLevel, "it is neither an object nor a document about the API")
	case read && d.policy.NoReads:
		return forbidden(q, SettingReads, "this is switched off")
	case !read && d.policy.NoWrites:
		return forbidden(q, SettingWrites, "this is switched off")
	}
	return nil
}

// belongs reports whether a request is about an object of an Application: one object by its name, a list or watch that its
// field selector restricts to one, or events about one.
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

// isApply tells a server-side apply, which creates what does not exist.
func isApply(r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err != nil || kind == "application/apply-patch+yaml" || kind == "application/apply-patch+cbor"
}
