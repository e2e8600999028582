package kind

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file compares the objects of a standby with those of the hub that was active before, as a planned promotion does. It
// uses the projections of the replication between them.

// ComparedItem is what a hub has of an item.
type ComparedItem struct {
	Version engine.Version // of what a promotion can lose

	// Removable reports, on the standby, whether the object is deleted if the active hub no longer has it.
	Removable bool
}

// ComparedItems are the items of a hub by namespace and name.
type ComparedItems map[engine.Key]ComparedItem

// AddActive adds an object of the hub that was active.
func (c ComparedItems) AddActive(k StandbyKind, o *Object, w *Env) {
	if !k.Matches(o) {
		return
	}
	if item, ok := k.Publish(o, w); ok {
		c[item.Key] = ComparedItem{Version: k.comparedVersion(item.Content)}
	}
}

// AddStandby adds an object of the standby.
func (c ComparedItems) AddStandby(k StandbyKind, o *Object, w *Env) {
	if !k.Matches(o) {
		return
	}
	if item, ok := k.ReadReplica(o, w); ok {
		c[item.Key] = ComparedItem{k.comparedVersion(item.Content), item.Ownership.Owned && !k.Keeps(o)}
	}
}

// Lacks returns what a standby with these items lacks of the hub that was active: items that are missing, that differ, and that
// are still there.
func (c ComparedItems) Lacks(active ComparedItems) (missing, differ, deleted []engine.Key) {
	for key, item := range active {
		switch held, ok := c[key]; {
		case !ok:
			missing = append(missing, key)
		case held.Version != item.Version:
			differ = append(differ, key)
		}
	}
	for key, item := range c {
		if _, ok := active[key]; !ok && item.Removable {
			deleted = append(deleted, key)
		}
	}
	return missing, differ, deleted
}

func (k StandbyKind) comparedVersion(content []byte) engine.Version {
	return engine.VersionOf(k.comparedOnPromotion(content))
}

// comparedOnPromotion returns the part of a content that a promotion can lose. It leaves out the status of Applications and of
// Agents, which agents report again to each hub. It also leaves out the refresh and hydrate commands of Applications, which a
// hub that serves no agents does not take up.
func (k StandbyKind) comparedOnPromotion(content []byte) []byte {
	var paths [][]string
	switch k.resource {
	case Applications:
		paths = [][]string{{"status"}}
		for _, key := range []string{RefreshAnnotation, RefreshTimeAnnotation, HydrateAnnotation, HydrateTimeAnnotation} {
			paths = append(paths, []string{"metadata", "annotations", key})
		}
	case Agents:
		paths = [][]string{{"status"}}
	}
	for _, path := range paths {
		without, err := rawjson.Remove(content, path...)
		if err != nil {
			return content
		}
		content = without
	}
	return content
}
