package kind

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Allow (hub) is what an autonomous agent may set on its replicas in addition to what it deploys. It takes effect on the
// hub: roles grant permissions in the hub's Argo CD, and the hub's notification controller sends with its own
// credentials. The zero value allows nothing.
type Allow struct {
	Roles         bool // roles of AppProjects
	Notifications bool // subscriptions on Applications and AppProjects
}

// refusesAnnotation reports whether the hub does not take an annotation from the agent.
func (w *Env) refusesAnnotation(key string) bool {
	return w.Side == Hub && w.Agent.Mode == Autonomous && !w.Agent.Allow.Notifications && IsSubscription(key)
}

func (w *Env) refusesRoles() bool {
	return w.Side == Hub && w.Agent.Mode == Autonomous && !w.Agent.Allow.Roles
}

// IsSubscription reports whether an annotation subscribes to notifications of Argo CD, in the current or the older form.
func IsSubscription(key string) bool {
	return strings.HasPrefix(key, "notifications.argoproj.io/") ||
		key == oldRecipients || strings.HasSuffix(key, "."+oldRecipients)
}

const oldRecipients = "recipients.argocd-notifications.argoproj.io"

// WithoutRefused returns a replica on the hub without what its agent set and is not allowed to set. Subscriptions that
// users added on the hub stay.
func WithoutRefused(r Resource, o *Object, w *Env) *Object {
	owned := readOwnedKeys(o)
	refused := func(key string) bool { return slices.Contains(owned.annotations, key) && w.refusesAnnotation(key) }
	roles := r == AppProjects && w.refusesRoles() && o.Get("spec", "roles") != nil
	if !roles && !slices.ContainsFunc(owned.annotations, refused) {
		return o
	}
	return o.changed(func(d *draft) {
		annotations := without(members(o.annotations), refused)
		setText(&annotations, OwnedKeysAnnotation, ownedKeys{slices.DeleteFunc(slices.Clone(owned.annotations), refused), owned.labels}.String())
		setList(&d.meta, "annotations", annotations)
		if roles {
			d.top.Set("spec", withoutRoles(o.Get("spec")))
		}
	})
}

// RefusesContent reports whether an item of an autonomous agent has something that the agent is not allowed to set.
func RefusesContent(content []byte, w *Env) bool {
	if w.Side != Hub || w.Agent.Mode != Autonomous {
		return false
	}
	annotations := keys(members(rawjson.Get(content, "metadata", "annotations")))
	return w.refusesRoles() && rawjson.Get(content, "spec", "roles") != nil || slices.ContainsFunc(annotations, w.refusesAnnotation)
}

func withoutRoles(spec []byte) []byte {
	fields := members(spec)
	fields.Remove("roles")
	return fields.Bytes()
}
