package reconcile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file handles objects of the hub with fields that the API server of the spoke does not store, usually because Argo
// CD is older there. Fields of an Application are in its alias. An AppProject has no conditions, so the Applications of
// the project show its fields. If the project is refused, none of its Applications is changed: the spoke may have an
// earlier form of the project, which allows more.

// maxRefusedProjects bounds the refused AppProjects that do not exist on the spoke. Without its AppProject, Argo CD
// deploys nothing.
const maxRefusedProjects = 1000

// mustStore returns the fields without which an object is not to be written. See Write.
func (l *agentSync) mustStore(s *scope, o *kind.Object) []string {
	if l.reconciler.cfg.Side != kind.Spoke || s.cfg.Name != kind.ApplicationScope && s.cfg.Name != kind.AppProjectScope {
		return nil
	}
	return kind.MustStore(o, l.reconciler.cfg.Policy.DroppedFields)
}

// recordRefusedProject records whether an AppProject is refused because of its fields.
func (l *agentSync) recordRefusedProject(s *scope, name string, r result) {
	if s.cfg.Name != kind.AppProjectScope || l.reconciler.cfg.Side != kind.Spoke || r.fail != nil && len(r.fail.NotStored) == 0 {
		return
	}
	var fields []string
	if r.fail != nil {
		fields = kind.ShortFields(r.fail.NotStored)
	}
	exists := l.reconciler.cache.get(l.reconciler.projectRef(name)) != nil
	switch {
	case slices.Equal(l.refusedProjects[name], fields):
		return
	case fields == nil:
		delete(l.refusedProjects, name)
		l.step(engine.Reconsider{Scope: kind.ApplicationScope})
	case l.refusedProjects == nil:
		l.refusedProjects = map[string][]string{name: fields}
	case exists || len(l.refusedProjects) < maxRefusedProjects:
		l.refusedProjects[name] = fields
	}
	l.notifyProject(name)
}

// refusedWithProject returns why an Application is not applied because of its AppProject, or nil.
func (l *agentSync) refusedWithProject(s *scope, e engine.Apply) *Failure {
	if s.cfg.Name != kind.ApplicationScope || len(l.refusedProjects) == 0 {
		return nil
	}
	project := rawjson.Text(e.Content, "spec", "project")
	fields := l.refusedProjects[project]
	if len(fields) == 0 {
		return nil
	}
	return &Failure{Code: engine.NotAllowed, Message: fmt.Sprintf("AppProject %s is refused, because the cluster of the agent does not store %s: "+
		"upgrade the CRDs of Argo CD there, or change --dropped-fields of the agent", project, strings.Join(fields, ", "))}
}

// droppedProjectFields implements kind.Env.ProjectFields.
func (l *agentSync) droppedProjectFields(project string) []string {
	prefix, fields := "AppProject "+project+", refused: ", l.refusedProjects[project]
	if len(fields) == 0 {
		prefix = "AppProject " + project + ": "
		if o := l.reconciler.cache.get(l.reconciler.projectRef(project)); o != nil {
			fields = kind.DroppedFields(kind.AppProjectKind{}, o, &l.env)
		}
	}
	shown := make([]string, 0, len(fields))
	for _, f := range fields {
		shown = append(shown, prefix+f)
	}
	return shown
}

// droppedFieldsChanged has the Applications of an AppProject show its dropped fields.
func (n *Reconciler) droppedFieldsChanged(was, is *kind.Object) {
	if n.cfg.Side != kind.Spoke || is == nil {
		return
	}
	l := n.syncs[""]
	dropped := func(o *kind.Object) []string {
		if o == nil {
			return nil
		}
		return kind.DroppedFields(kind.AppProjectKind{}, o, &l.env)
	}
	if !slices.Equal(dropped(was), dropped(is)) {
		l.notifyProject(is.Name())
	}
}

// notifyProject publishes the status of the Applications of an AppProject again.
func (l *agentSync) notifyProject(name string) {
	if l.env.Agent.Mode != kind.Managed {
		return
	}
	for _, o := range slices.Clone(l.reconciler.cache.byProject[name]) {
		l.notify(kind.Applications, o, o, true)
	}
}
