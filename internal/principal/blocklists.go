package principal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// blocklist is the ConfigMap whose keys are the fingerprints of revoked
// certificates.
const blocklist = "argocd-agent-tls-blocklist"

// What does not fit there is in further ones, which are named after it (-0 to -f)
// and have this label. An object has a size that it cannot grow beyond, and who
// recycles clusters deletes more agents in a certificate's life than fit into one.
const (
	pageLabel    = kind.Prefix + "tls-blocklist"
	maxPages     = 16
	pageCapacity = 512 << 10 // bytes of keys and notes that we fill a list to: half of what an API server takes, the rest is people's
)

// blocklists are all of them, as they were last seen. Together they are one set.
type blocklists struct {
	client    *kube.Client
	namespace string
	changed   func(all map[string]string) // the set has; every call has a map of its own
	ready     chan struct{}               // closed when all were read once

	notifyMu sync.Mutex // held while others are told, so that they hear changes in their order
	mu       sync.Mutex
	pages    map[string]blocklistPage
	listed   map[bool]bool // whether the first was, and whether the further ones were
}

type blocklistPage struct {
	data map[string]string
	size int // in bytes, of keys and notes
}

func newBlocklists(client *kube.Client, namespace string, changed func(map[string]string)) *blocklists {
	return &blocklists{client: client, namespace: namespace, changed: changed, ready: make(chan struct{}), pages: map[string]blocklistPage{}, listed: map[bool]bool{}}
}

// watches lists what has to be followed, and by what.
func (b *blocklists) watches() map[kube.Watch]func(context.Context, reconcile.Input) error {
	sink := func(first bool) func(context.Context, reconcile.Input) error {
		return func(_ context.Context, in reconcile.Input) error {
			b.apply(first, in)
			return nil
		}
	}
	return map[kube.Watch]func(context.Context, reconcile.Input) error{
		{Resource: kind.ConfigMaps, Namespace: b.namespace, Name: blocklist}:     sink(true),
		{Resource: kind.ConfigMaps, Namespace: b.namespace, Selector: pageLabel}: sink(false),
	}
}

// apply hears of the first list, or of further ones.
func (b *blocklists) apply(first bool, in reconcile.Input) {
	b.notifyMu.Lock()
	defer b.notifyMu.Unlock()
	all, complete := b.update(first, in)
	if !complete {
		return // what is not read yet must not seem to have been taken back
	}
	b.changed(all)
	select {
	case <-b.ready:
	default:
		close(b.ready)
	}
}

func (b *blocklists) update(first bool, in reconcile.Input) (all map[string]string, complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch in := in.(type) {
	case reconcile.List:
		present := map[string]bool{}
		for _, o := range in.Objects {
			present[o.Name()] = true
			b.put(first, o)
		}
		maps.DeleteFunc(b.pages, func(name string, _ blocklistPage) bool { return (name == blocklist) == first && !present[name] })
		b.listed[first] = true
	case reconcile.Observed:
		b.put(first, in.Object)
	case reconcile.Deleted:
		if (in.Ref.Name == blocklist) == first {
			delete(b.pages, in.Ref.Name)
		}
	}
	all = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(b.pages)) {
		for key, note := range b.pages[name].data {
			if before, twice := all[key]; !twice || deletedAt(note).After(deletedAt(before)) {
				all[key] = note
			}
		}
	}
	return all, b.listed[true] && b.listed[false]
}

func (b *blocklists) put(first bool, o *kind.Object) {
	if (o.Name() == blocklist) != first {
		return // somebody has labelled the first
	}
	var list blocklistPage
	if list.data, _ = rawjson.StringMap(o.Get("data")); list.data == nil {
		list.data = map[string]string{}
	}
	for key, note := range list.data {
		list.size += len(key) + len(note)
	}
	b.pages[o.Name()] = list
}

// add revokes the certificates of an agent that was deleted: in the first list
// that has room, of which what has expired is dropped.
func (b *blocklists) add(ctx context.Context, agent string, revoked map[string]time.Time, now time.Time) error {
	select {
	case <-b.ready:
	default:
		return errors.New("which certificates are revoked has not been read yet from ConfigMap " + blocklist)
	}
	for _, name := range pagesFor(agent) {
		change, there, fits := b.plan(name, agent, revoked, now)
		if !fits {
			continue
		}
		err := b.write(ctx, name, change, there)
		if kube.IsTooLarge(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("revoke the certificates of agent %s in ConfigMap %s: %w", agent, name, err)
		}
		b.recordWrite(name, change)
		return nil
	}
	return fmt.Errorf("revoke the certificates of agent %s: %w", agent, errBlocklistFull)
}

var errBlocklistFull = fmt.Errorf("ConfigMap %s and the %d that continue it are full. The Agent stays, and is not let in, until entries expire"+
	" or somebody removes what is not needed: see `argocd-agentctl blocklist tls list`", blocklist, maxPages)

// revokedNow reports whether a certificate is on a list as they are now, and not as
// they were last seen: who was deleted a moment ago is gone before that is.
func (b *blocklists) revokedNow(ctx context.Context, fingerprint string) (bool, error) {
	if fingerprint == "" {
		return false, nil
	}
	for w := range b.watches() {
		lists, err := b.client.List(ctx, w)
		if err != nil {
			return false, fmt.Errorf("read ConfigMap %s: %w", blocklist, err)
		}
		for _, o := range lists {
			if o.Get("data", fingerprint) != nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// pagesFor tells in which order lists are tried for an agent: most hubs never have
// more than the first, and the others fill evenly.
func pagesFor(agent string) []string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(agent))
	names := []string{blocklist}
	for i := range uint32(maxPages) {
		names = append(names, fmt.Sprintf("%s-%x", blocklist, (h.Sum32()+i)%maxPages))
	}
	return names
}

// plan is what would change in a list.
func (b *blocklists) plan(name, agent string, revoked map[string]time.Time, now time.Time) (change map[string]any, there, fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, there := b.pages[name]
	change = blocklistPatch(list.data, agent, revoked, now)
	return change, there, list.size+growth(list.data, change) <= pageCapacity
}

func growth(data map[string]string, change map[string]any) (bytes int) {
	for key, note := range change {
		if old, had := data[key]; had {
			bytes -= len(key) + len(old)
		}
		if text, ok := note.(string); ok {
			bytes += len(key) + len(text)
		}
	}
	return bytes
}

// write changes a list, and makes it where there is none.
func (b *blocklists) write(ctx context.Context, name string, change map[string]any, there bool) error {
	ref := kind.Ref{Resource: kind.ConfigMaps, Namespace: b.namespace, Name: name}
	if !there {
		labels := map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
		if name != blocklist {
			labels[pageLabel] = "continued"
		}
		_, err := b.client.Create(ctx, ref, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": change,
			"metadata": map[string]any{"name": name, "namespace": b.namespace, "labels": labels}})
		if !kube.IsConflict(err) {
			return err
		}
		// It is there, but not for us to see yet; or somebody has taken its label.
	}
	patch := map[string]any{"data": change}
	if name != blocklist {
		patch["metadata"] = map[string]any{"labels": map[string]string{pageLabel: "continued"}}
	}
	_, err := b.client.Patch(ctx, ref, patch)
	return err
}

// recordWrite notes what was written, until it is seen: the next one has to know how
// full a list is.
func (b *blocklists) recordWrite(name string, change map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.pages[name]
	list.size += growth(list.data, change)
	if list.data == nil {
		list.data = map[string]string{}
	}
	for key, note := range change {
		if text, ok := note.(string); ok {
			list.data[key] = text
		} else {
			delete(list.data, key)
		}
	}
	b.pages[name] = list
}

// prune drops what has expired from all lists: those that nobody adds to as well.
func (b *blocklists) prune(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	over := map[string]map[string]any{}
	for name, list := range b.pages {
		if change := expired(list.data, now); len(change) > 0 {
			over[name] = change
		}
	}
	b.mu.Unlock()
	for name, change := range over {
		if err := b.write(ctx, name, change, true); err != nil && !kube.IsNotFound(err) {
			return fmt.Errorf("drop what has expired from ConfigMap %s: %w", name, err)
		}
	}
	return nil
}
