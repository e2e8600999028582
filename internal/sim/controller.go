package sim

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// controller is Argo CD's application controller on a spoke, as the contract describes it: it normalises, compares,
// refreshes, runs operations, syncs by itself where that is asked for, and finalises.
type controller struct {
	c         *cluster
	planned   map[kind.Ref]engine.Time // when to look next
	finishing map[kind.Ref]string      // the operation whose end is planned
	attempted map[kind.Ref]string      // revision of the last automatic sync
	compared  map[kind.Ref]engine.Time
	workloads map[string]string // namespace/name of the Application → what is deployed
	fights    map[string]bool   // Applications that something on the cluster keeps labelling
}

const (
	controllerName = "application-controller"
	cascade        = "resources-finalizer.argocd.argoproj.io"
	preDelete      = "pre-delete-finalizer.argocd.argoproj.io"
	postDelete     = "post-delete-finalizer.argocd.argoproj.io"
	refreshKey     = "argocd.argoproj.io/refresh"
	hydrateKey     = "argocd.argoproj.io/hydrate"
	approvalKey    = "argocd.argoproj.io/deletion-approved"
	compareEvery   = 170 * second
)

func newController(c *cluster) *controller {
	return &controller{c: c, planned: map[kind.Ref]engine.Time{}, finishing: map[kind.Ref]string{}, attempted: map[kind.Ref]string{},
		compared: map[kind.Ref]engine.Time{}, workloads: map[string]string{}, fights: map[string]bool{}}
}

func isCascade(f string) bool { return f == cascade || strings.HasPrefix(f, cascade+"/") }

func isArgoFinalizer(f string) bool { return strings.Contains(f, "finalizer.argocd.argoproj.io") }

// noticed looks at an Application soon after it has changed.
func (k *controller) noticed(r kind.Ref) { k.plan(r, k.c.w.between(50, 2*second)) }

func (k *controller) plan(r kind.Ref, d engine.Time) {
	at := k.c.w.now + d
	if planned, ok := k.planned[r]; ok && planned <= at {
		return
	}
	k.planned[r] = at
	k.c.w.after(d, func() {
		if k.planned[r] == at {
			delete(k.planned, r)
			k.look(r)
		}
	})
}

func (k *controller) look(r kind.Ref) {
	o := k.c.st.get(r)
	if o == nil {
		delete(k.compared, r)
		delete(k.finishing, r)
		return
	}
	if k.c.down() {
		k.plan(r, 5*second)
		return
	}
	t := decode(o)
	switch {
	case o.IsDeleting():
		// An operation comes first, even if it was asked for after the deletion.
		if digTree(t, "operation") == nil {
			k.finalise(r, t)
		} else {
			k.operate(r, t)
		}
	case k.normalise(r, t), k.operate(r, t), k.compare(r, t), k.autoSync(r, t):
		// One thing at a time: the write brings us back here.
	default:
		k.plan(r, compareEvery)
	}
}

func (k *controller) edit(r kind.Ref, change func(tree)) { k.c.edit(controllerName, r, change) }

// normalise brings the spec into the controller's form, and adds finalizers.
func (k *controller) normalise(r kind.Ref, t tree) bool {
	before := text(t)
	spec := digTree(t, "spec")
	if digText(spec, "project") == "" {
		spec["project"] = "default"
	}
	if p, ok := spec["syncPolicy"].(tree); ok && len(p) == 0 {
		delete(spec, "syncPolicy")
	}
	for _, key := range []string{"helm", "kustomize", "directory"} {
		if m, ok := dig(spec, "source", key).(tree); ok && len(m) == 0 {
			cut(spec, "source", key)
		}
	}
	if digText(spec, "source", "path") == "hooks" {
		addFinalizer(t, preDelete)
		addFinalizer(t, postDelete)
	}
	if k.fights[r.Name] {
		put(t, "mine", "metadata", "labels", "fight")
	}
	if text(t) == before {
		return false
	}
	_, err := k.c.st.update(actor{what: controllerName}, r.Resource, encode(t))
	return err == nil
}

func completed(phase string) bool {
	return phase == "Succeeded" || phase == "Failed" || phase == "Error"
}

// operate starts an operation, or ends one that is to be terminated.
func (k *controller) operate(r kind.Ref, t tree) bool {
	operation := digTree(t, "operation")
	if operation == nil {
		return false
	}
	phase := digText(t, "status", "operationState", "phase")
	switch {
	case phase == "" || completed(phase):
		startedAt := k.c.clock()
		k.c.w.ledger.ran(k.c, r, t, operation)
		k.edit(r, func(t tree) {
			put(t, tree{"operation": copied(operation), "phase": "Running", "startedAt": startedAt}, "status", "operationState")
		})
		return true
	case phase == "Terminating":
		k.c.w.ledger.terminated(k.c, r, t)
		k.complete(r, "Failed", "Operation terminated")
		return true
	}
	if id := running(t); k.finishing[r] != id {
		k.finishing[r] = id
		k.c.w.after(k.c.w.between(second, 40*second), func() { k.finish(r, id) })
	}
	return false
}

// running names the operation that is under way.
func running(t tree) string {
	state := dig(t, "status", "operationState")
	if phase := digText(state, "phase"); phase == "" || completed(phase) {
		return ""
	}
	return text(dig(state, "operation")) + digText(state, "startedAt")
}

func (k *controller) finish(r kind.Ref, id string) {
	if k.finishing[r] != id {
		return
	}
	o := k.c.st.get(r)
	if o == nil {
		delete(k.finishing, r)
		return
	}
	if k.c.down() {
		k.c.w.after(5*second, func() { k.finish(r, id) })
		return
	}
	delete(k.finishing, r)
	t := decode(o)
	if digTree(t, "operation") == nil || running(t) != id {
		return
	}
	if digText(t, "status", "operationState", "phase") == "Terminating" {
		return // look sees to it
	}
	phase := "Succeeded"
	if k.c.w.chance(10) {
		phase = "Failed"
	} else {
		k.deploy(r, t)
	}
	k.complete(r, phase, "done")
}

// deploy replaces what an Application has deployed. With prune, what the new revision lacks is deleted.
func (k *controller) deploy(r kind.Ref, t tree) {
	app := r.Namespace + "/" + r.Name
	revision := digText(t, "spec", "source", "targetRevision")
	if dig(t, "spec", "syncPolicy", "automated", "prune") == true {
		k.c.w.ledger.pruned(k.c, r, digText(t, "metadata", "annotations", sourceKey), k.workloads[app], revision)
	}
	k.workloads[app] = revision
	if isParent(t) {
		k.createChildren(r, revision)
	}
}

func (k *controller) complete(r kind.Ref, phase, message string) {
	k.edit(r, func(t tree) {
		put(t, phase, "status", "operationState", "phase")
		put(t, message, "status", "operationState", "message")
		put(t, k.c.clock(), "status", "operationState", "finishedAt")
		put(t, tree{"revision": digText(t, "spec", "source", "targetRevision")}, "status", "operationState", "syncResult")
		cut(t, "operation")
	})
	delete(k.compared, r)
}

// compare writes a new status if there is a reason to look.
func (k *controller) compare(r kind.Ref, t tree) bool {
	revision := digText(t, "spec", "source", "targetRevision")
	deployed := k.workloads[r.Namespace+"/"+r.Name]
	sync, health := "OutOfSync", "Missing"
	if deployed == revision {
		sync = "Synced"
	}
	if deployed != "" {
		health = "Healthy"
	}
	refresh := digText(t, "metadata", "annotations", refreshKey) != "" || digText(t, "metadata", "annotations", hydrateKey) != ""
	last, known := k.compared[r]
	due := !known || k.c.w.now-last >= compareEvery
	if !refresh && !due && digText(t, "status", "sync", "status") == sync && digText(t, "status", "sync", "revision") == revision &&
		digText(t, "status", "health", "status") == health {
		return false
	}
	k.compared[r] = k.c.w.now
	k.edit(r, func(t tree) {
		put(t, sync, "status", "sync", "status")
		put(t, revision, "status", "sync", "revision")
		put(t, health, "status", "health", "status")
		put(t, k.c.clock(), "status", "reconciledAt")
		if size := k.c.w.shape.statusSize; digText(t, "spec", "source", "path") == "big" && size > 0 {
			put(t, []any{tree{"kind": "ConfigMap", "name": strings.Repeat("x", size)}}, "status", "resources")
		} else {
			put(t, []any{tree{"kind": "Deployment", "name": r.Name, "version": deployed}}, "status", "resources")
		}
		cut(t, "metadata", "annotations", refreshKey)
		cut(t, "metadata", "annotations", hydrateKey)
	})
	return true
}

// autoSync starts an operation where the spec says so, once for each revision.
func (k *controller) autoSync(r kind.Ref, t tree) bool {
	if _, ok := dig(t, "spec", "syncPolicy", "automated").(tree); !ok || digTree(t, "operation") != nil ||
		digText(t, "status", "sync", "status") != "OutOfSync" {
		return false
	}
	revision := digText(t, "spec", "source", "targetRevision")
	if k.attempted[r] == revision {
		return false
	}
	k.attempted[r] = revision
	k.edit(r, func(t tree) {
		t["operation"] = tree{"sync": tree{"revision": revision}, "initiatedBy": tree{"automated": true}}
		cut(t, "status", "operationState")
	})
	return true
}

// finalise runs the hooks before, deletes what an Application deployed, if it is to go with it, runs the hooks after,
// and takes the finalizers off.
func (k *controller) finalise(r kind.Ref, t tree) {
	list := finalizers(t)
	is := func(prefix string) func(string) bool {
		return func(f string) bool { return f == prefix || strings.HasPrefix(f, prefix+"/") }
	}
	for _, step := range []struct {
		which func(string) bool
		do    func()
	}{
		{is(preDelete), func() { k.c.w.ledger.hookRan(k.c, r, t, "pre-delete") }},
		{isCascade, func() {
			k.c.w.ledger.cascaded(k.c, r, t)
			delete(k.workloads, r.Namespace+"/"+r.Name)
			if isParent(t) {
				k.createChildren(r, "")
			}
		}},
		{is(postDelete), func() { k.c.w.ledger.hookRan(k.c, r, t, "post-delete") }},
	} {
		if !slices.ContainsFunc(list, step.which) {
			continue
		}
		if k.c.projectOf(k.c.st.get(r)) == nil {
			k.plan(r, 10*second) // finalising needs the project
			return
		}
		step.do()
		k.edit(r, func(t tree) { dropFinalizers(t, step.which) })
		return
	}
}
