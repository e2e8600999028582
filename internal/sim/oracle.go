package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file says when the two sides are equal. It compares the objects in the two API servers, decoded the ordinary
// way, by the words of the contract.

// differences lists what is not as it should be, in words. Empty: all is well.
func (w *world) differences() []string {
	d := differ{w: w}
	if w.group != nil {
		d.hubs(w.group)
	}
	for _, s := range w.spokes {
		if s.modeChanged {
			continue
		}
		if s.managed() {
			d.managed(w, s)
			d.children(w, s)
		} else {
			d.autonomous(w, s)
		}
	}
	return d.found
}

type differ struct {
	w     *world
	found []string
}

func (d *differ) add(format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// managed compares what the hub sends to an agent with what is there.
func (d *differ) managed(w *world, s *spoke) {
	meant := map[kind.Ref]*kind.Object{}
	for _, r := range w.resources() {
		for _, o := range w.hub.st.list(r) {
			from := refOf(r, o)
			to := copyOnSpoke(s, from)
			if w.frozen(s, from, o) {
				meant[to] = o
				elsewhere := slices.ContainsFunc(w.spokes, func(other *spoke) bool { return other != s && w.sentTo(other, from, o) })
				if shown := condition(decode(o), "AgentError"); !elsewhere && !strings.HasPrefix(shown, "Frozen: ") {
					d.add("%s is frozen, and the hub shows %q", short(from), shown)
				}
			}
			if !w.sentTo(s, from, o) {
				continue
			}
			meant[to] = o
			if r == kind.Applications {
				d.application(w, s, o, s.cluster.st.get(to), to)
			} else {
				d.configuration(s, from, o, s.cluster.st.get(to))
			}
		}
		for _, o := range s.cluster.st.list(r) {
			there := refOf(r, o)
			if !ownedByAgent(o) || meant[there] != nil || ignoredLabel(o) {
				continue
			}
			if r == kind.AppProjects && s.cluster.uses(o.Name()) {
				continue // stays as long as an Application names it
			}
			if r == kind.Applications && s.agent.Mapping == kind.ByNamespace && o.Namespace() != s.cluster.argo {
				continue // of another mapping, which is left behind as it is
			}
			if r == kind.Applications && o.IsDeleting() && s.cluster.projectOf(o) == nil {
				continue // without its project Argo CD does not run its hooks
			}
			d.add("%s on %s has gone on the hub", short(there), s.agent.Name)
		}
	}
}

func (c *cluster) projectOf(o *kind.Object) *kind.Object {
	name := unquote(o.Get("spec", "project"))
	if name == "" {
		name = "default"
	}
	return c.st.get(ref(kind.AppProjects, c.argo, name))
}

func (c *cluster) uses(project string) bool {
	return slices.ContainsFunc(c.st.list(kind.Applications), func(o *kind.Object) bool {
		p := unquote(o.Get("spec", "project"))
		return p == project || p == "" && project == "default"
	})
}

// application compares one Application of the hub with its replica.
func (d *differ) application(w *world, s *spoke, hub, replica *kind.Object, there kind.Ref) {
	h := decode(hub)
	at := short(refOf(kind.Applications, hub)) + " for " + s.agent.Name
	shown := condition(h, "AgentError")
	switch {
	case replica != nil && ignoredLabel(replica):
		return // a user on the spoke excludes it
	case replica != nil && replica.IsDeleting() && s.cluster.projectOf(replica) == nil:
		return // without its project Argo CD does not finalise it
	case w.refused(h, replica) || !s.allows(there.Namespace):
		if shown == "" {
			d.add("%s cannot be had, and the hub does not say so", at)
		}
		return
	case hub.IsDeleting():
		d.add("%s is still there, deleting", at)
		return
	case replica == nil:
		d.add("%s is missing (%s)", at, shown)
		return
	}
	d.conditions(at, h)
	d.dropped(s, at, h)
	c := decode(replica)
	d.conditions(at, c)
	if digText(c, "metadata", "annotations", sourceKey) != w.hub.id(hub) || !ownedByAgent(replica) {
		d.add("%s is a replica of %s, not of %s", at, digText(c, "metadata", "annotations", sourceKey), w.hub.id(hub))
	}
	if a, b := plainSpec(s, h, "in-cluster"), plainSpec(s, c, ""); a != b {
		d.add("%s: spec %s is %s there", at, a, b)
	}
	d.metadata(at, h, c, func(key string) bool { return key == "fight" && s.ctl.fights[there.Name] })
	if a, b := cascades(h), cascades(c); a != b {
		d.add("%s: finalizers %s are %s there", at, a, b)
	}
	d.status(at, h, c)
}

// refused reports whether a spoke cannot accept an Application: its API server forbids it, or it must not be adopted.
func (w *world) refused(h tree, replica *kind.Object) bool {
	if isInvalidPath(digText(h, "spec", "source", "path")) {
		return dig(h, "metadata", "deletionTimestamp") == nil || replica != nil
	}
	if replica == nil || ownedByAgent(replica) {
		return false
	}
	switch digText(h, "metadata", "annotations", "argocd.argoproj.io/adoption-policy") {
	case "always":
		return false
	case "never":
		return true
	}
	return w.shape.policy.AdoptNever
}

// conditions looks at an Application with which nothing is wrong.
func (d *differ) conditions(at string, t tree) {
	for _, kind := range []string{"AgentError", "AgentHeldWarning"} {
		if shown := condition(t, kind); shown != "" {
			d.add("%s is fine, and shows %s: %s", at, kind, shown)
		}
	}
}

func condition(t tree, kind string) string {
	for _, c := range digList(t, "status", "conditions") {
		if digText(c, "type") == kind {
			return digText(c, "message")
		}
	}
	return ""
}

// plainSpec is a spec without what does not matter: its destination as it should be on the other side, what the
// controller normalises, and fields that some API servers drop or add.
func plainSpec(s *spoke, t tree, destination string) string {
	spec := copied(digTree(t, "spec")).(tree)
	if destination != "" {
		put(spec, destination, "destination", "name")
		cut(spec, "destination", "server")
	}
	if digText(spec, "project") == "" {
		spec["project"] = "default"
	}
	if p, ok := spec["syncPolicy"].(tree); ok && len(p) == 0 {
		delete(spec, "syncPolicy")
	}
	if s.cluster.prunes {
		delete(spec, "experimental")
	}
	if s.w.shape.defaults {
		delete(spec, "revisionHistoryLimit")
	}
	return text(spec)
}

func cascades(t tree) string {
	return strings.Join(slices.DeleteFunc(finalizers(t), func(f string) bool { return !isCascade(f) }), ",")
}

// metadata compares labels and annotations that cross.
func (d *differ) metadata(at string, from, to tree, except func(string) bool) {
	for _, list := range []string{"labels", "annotations"} {
		a, b := d.replicated(from, list, except), d.replicated(to, list, except)
		if a != b {
			d.add("%s: %s %s are %s there", at, list, a, b)
		}
	}
}

func (d *differ) replicated(t tree, list string, except func(string) bool) string {
	out := tree{}
	for key, v := range digTree(t, "metadata", list) {
		if !d.w.notReplicated(key) && !except(key) {
			out[key] = v
		}
	}
	return text(out)
}

// status compares what the spoke's controller says with what the hub shows.
func (d *differ) status(at string, h, c tree) {
	if h["operation"] != nil || c["operation"] != nil {
		d.add("%s: an operation is under way: %s on the hub, %s there", at, text(h["operation"]), text(c["operation"]))
	}
	if dig(c, "metadata", "deletionTimestamp") != nil {
		return // Argo CD only finalises it, as soon as it can
	}
	for _, key := range []string{refreshKey, hydrateKey} {
		if digText(h, "metadata", "annotations", key) != "" {
			d.add("%s: %s is still pending on the hub", at, key)
		}
	}
	x, y := plainStatus(h), plainStatus(c)
	if condition(h, "AgentTruncatedWarning") != "" {
		for _, t := range []tree{x, y} {
			delete(t, "resources")
			cut(t, "operationState", "syncResult")
		}
	}
	if infoOf(dig(x, "operationState", "operation"), "argocd-agent/refused") != "" {
		delete(x, "operationState")
		delete(y, "operationState")
	}
	if a, b := text(x), text(y); a != b {
		d.add("%s: the hub shows status %s, it is %s", at, a, b)
	}
}

func plainStatus(t tree) tree {
	s, _ := copied(digTree(t, "status")).(tree)
	if s == nil {
		s = tree{}
	}
	delete(s, "reconciledAt")
	if state := digTree(s, "operationState"); state != nil {
		s["operationState"] = bySpokeClock(state)
	}
	var conditions []any
	for _, c := range digList(s, "conditions") {
		if !strings.HasPrefix(digText(c, "type"), "Agent") {
			conditions = append(conditions, c)
		}
	}
	delete(s, "conditions")
	if len(conditions) > 0 {
		s["conditions"] = conditions
	}
	return s
}

// bySpokeClock is an operation state with the times of the spoke, which the hub records if it shows others.
func bySpokeClock(state tree) tree {
	const record = "argocd-agent/times"
	started, finished, ok := strings.Cut(infoOf(dig(state, "operation"), record), " ")
	if !ok {
		return state
	}
	state, _ = copied(state).(tree)
	state["startedAt"] = started
	if finished != "" {
		state["finishedAt"] = finished
	}
	var info []any
	for _, e := range digList(state, "operation", "info") {
		if digText(e, "name") != record {
			info = append(info, e)
		}
	}
	if put(state, info, "operation", "info"); len(info) == 0 {
		cut(state, "operation", "info")
	}
	return state
}
