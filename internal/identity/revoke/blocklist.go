// Package revoke keeps the blocklist of revoked certificates in ConfigMaps on the hub. It publishes the list to
// identity.Revocations and adds the certificates of deleted agents.
package revoke

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/sharedread"
)

// ConfigMap is the name of the first page of the blocklist. Its keys are fingerprints of revoked certificates.
const ConfigMap = "argocd-agent-tls-blocklist"

// Further pages are named ConfigMap-0 to ConfigMap-f and have the label pageLabel. The size of an object is limited, and
// a hub can delete more agents during the lifetime of a certificate than fit into one.
const (
	pageLabel    = kind.Prefix + "tls-blocklist"
	maxPages     = 16
	pageCapacity = 512 << 10 // bytes of keys and notes; half of the API server's limit, the rest is for users
	readTimeout  = 15 * time.Second
)

// Blocklist is the union of all pages, as last seen.
type Blocklist struct {
	client      *kube.Client
	namespace   string
	revocations *identity.Revocations
	log         *slog.Logger
	ready       chan struct{}
	current     *sharedread.Reader[[]*kind.Object] // the pages in the API server

	notifyMu sync.Mutex // held while a change is published, so that changes are published in order
	mu       sync.Mutex
	pages    map[string]page
	listed   bool
}

type page struct {
	data map[string]string
	size int // of keys and notes, in bytes
}

// New returns a blocklist that publishes to revocations. If revocations is nil, nothing is published.
func New(client *kube.Client, namespace string, revocations *identity.Revocations, log *slog.Logger) *Blocklist {
	b := &Blocklist{client: client, namespace: namespace, revocations: revocations, log: log, ready: make(chan struct{}), pages: map[string]page{}}
	b.current = sharedread.New(b.readPages)
	return b
}

// Ready is closed when all pages were read once.
func (b *Blocklist) Ready() <-chan struct{} { return b.ready }

// Check returns an error until all pages were read once.
func (b *Blocklist) Check() error {
	select {
	case <-b.ready:
		return nil
	default:
		return errors.New("ConfigMap " + ConfigMap + " has not been read yet")
	}
}

// Sink returns the sink of the watch of the namespace's ConfigMaps. After each change, revoked is called with the
// fingerprints that were added.
func (b *Blocklist) Sink(revoked func(fingerprints []string)) kube.Sink {
	return func(_ context.Context, in reconcile.Input) error {
		b.notifyMu.Lock()
		defer b.notifyMu.Unlock()
		all, changed := b.update(in)
		if !changed {
			return nil
		}
		b.publish(all, revoked)
		select {
		case <-b.ready:
		default:
			close(b.ready)
		}
		return nil
	}
}

func (b *Blocklist) publish(all map[string]string, revoked func([]string)) {
	if b.revocations == nil {
		return
	}
	before, err := deletedAgents(all)
	b.revocations.SetBefore(before)
	added, invalid := b.revocations.Set(slices.Sorted(maps.Keys(all)))
	if err = errors.Join(err, invalid); err != nil {
		b.log.Warn("Blocklist has invalid entries", "configmap", ConfigMap, "error", err)
	}
	revoked(added)
}

// update applies a change. It returns all entries, and false if no page has changed or the pages were not listed yet.
func (b *Blocklist) update(in reconcile.Input) (all map[string]string, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch in := in.(type) {
	case reconcile.List:
		clear(b.pages)
		for _, o := range in.Objects {
			b.put(o)
		}
		b.listed, changed = true, true
	case reconcile.Observed:
		changed = b.put(in.Object)
	case reconcile.Deleted:
		_, changed = b.pages[in.Ref.Name]
		delete(b.pages, in.Ref.Name)
	}
	if !changed || !b.listed { // an entry of a page that was not read yet must not look removed
		return nil, false
	}
	all = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(b.pages)) {
		for key, note := range b.pages[name].data {
			if before, twice := all[key]; !twice || deletedAt(note).After(deletedAt(before)) {
				all[key] = note
			}
		}
	}
	return all, true
}

// put stores a ConfigMap if it is a page. It reports whether it is or was one.
func (b *Blocklist) put(o *kind.Object) bool {
	if _, labeled := o.Labels()[pageLabel]; !labeled && o.Name() != ConfigMap {
		_, was := b.pages[o.Name()] // a user removed the label
		delete(b.pages, o.Name())
		return was
	}
	var p page
	if p.data, _ = rawjson.StringMap(o.Get("data")); p.data == nil {
		p.data = map[string]string{}
	}
	for key, note := range p.data {
		p.size += len(key) + len(note)
	}
	b.pages[o.Name()] = p
	return true
}

// Add revokes the certificates of a deleted agent on the first page that has room. revoked maps fingerprints to expiry
// times; a zero time means unknown. Expired entries of that page are removed.
func (b *Blocklist) Add(ctx context.Context, agent string, revoked map[string]time.Time, now time.Time) error {
	return b.add(ctx, agent, func(listed map[string]string) map[string]any { return deletionPatch(listed, agent, revoked, now) })
}

// Revoke is Add for an agent that joins again.
func (b *Blocklist) Revoke(ctx context.Context, agent string, revoked map[string]time.Time, now time.Time) error {
	return b.add(ctx, agent, func(listed map[string]string) map[string]any {
		return revocationPatch(listed, entryPrefix+agent+entryJoined+now.UTC().Format(time.RFC3339), revoked, now)
	})
}

func (b *Blocklist) add(ctx context.Context, agent string, patch func(listed map[string]string) map[string]any) error {
	if err := b.Check(); err != nil {
		return err
	}
	for _, name := range pagesFor(agent) {
		change, exists, fits := b.plan(name, patch)
		if !fits {
			continue
		}
		err := b.write(ctx, name, change, exists)
		if kube.IsTooLarge(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("revoke the certificates of agent %s in ConfigMap %s: %w", agent, name, err)
		}
		b.recordWrite(name, change)
		return nil
	}
	return fmt.Errorf("revoke the certificates of agent %s: %w", agent, ErrFull)
}

// ErrFull is returned by Add if no page has room.
var ErrFull = fmt.Errorf("ConfigMap %s and its %d further pages are full. The Agent is not deleted and its agent is refused until entries expire"+
	" or a user removes entries: run `argocd-agentctl blocklist tls list`", ConfigMap, maxPages)

// RevokedNow reports whether a certificate is revoked, and whether the agent was deleted. It reads the pages from the API
// server, because an agent that was just deleted can reconnect before the watch shows its entry. The fingerprint is empty
// if the agent has no certificate.
func (b *Blocklist) RevokedNow(ctx context.Context, agent, fingerprint string) (revoked, deleted bool, err error) {
	pages, err := b.current.Read(ctx)
	if err != nil {
		return false, false, fmt.Errorf("read ConfigMap %s: %w", ConfigMap, err)
	}
	for _, o := range pages {
		revoked = revoked || fingerprint != "" && o.Get("data", fingerprint) != nil
		deleted = deleted || o.Get("data", deletedAgentPrefix+agent) != nil
	}
	return revoked, deleted, nil
}

// readPages reads all pages from the API server.
func (b *Blocklist) readPages() (all []*kind.Object, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout) // other callers may wait longer than the first
	defer cancel()
	for _, w := range []kube.Watch{{Resource: kind.ConfigMaps, Namespace: b.namespace, Name: ConfigMap}, {Resource: kind.ConfigMaps, Namespace: b.namespace, Selector: pageLabel}} {
		pages, err := b.client.List(ctx, w)
		if err != nil {
			return nil, err
		}
		all = append(all, pages...)
	}
	return all, nil
}

// pagesFor returns the pages in the order in which they are tried for an agent: the first page, then the further pages
// from one that depends on the name, so that they fill evenly.
func pagesFor(agent string) []string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(agent))
	names := []string{ConfigMap}
	for i := range uint32(maxPages) {
		names = append(names, fmt.Sprintf("%s-%x", ConfigMap, (h.Sum32()+i)%maxPages))
	}
	return names
}

func (b *Blocklist) plan(name string, patch func(listed map[string]string) map[string]any) (change map[string]any, exists, fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, exists := b.pages[name]
	change = patch(p.data)
	return change, exists, p.size+growth(p.data, change) <= pageCapacity
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

// write patches a page, or creates it.
func (b *Blocklist) write(ctx context.Context, name string, change map[string]any, exists bool) error {
	ref := kind.Ref{Resource: kind.ConfigMaps, Namespace: b.namespace, Name: name}
	if !exists {
		labels := map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
		if name != ConfigMap {
			labels[pageLabel] = "continued"
		}
		_, err := b.client.Create(ctx, ref, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": change,
			"metadata": map[string]any{"name": name, "namespace": b.namespace, "labels": labels}})
		if !kube.IsConflict(err) {
			return err
		}
		// The watch has not shown the page yet, or a user removed its label.
	}
	patch := map[string]any{"data": change}
	if name != ConfigMap {
		patch["metadata"] = map[string]any{"labels": map[string]string{pageLabel: "continued"}}
	}
	_, err := b.client.Patch(ctx, ref, patch)
	return err
}

// recordWrite applies a write to the page until the watch shows it, so that the next Add knows its size.
func (b *Blocklist) recordWrite(name string, change map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[name]
	p.size += growth(p.data, change)
	if p.data == nil {
		p.data = map[string]string{}
	}
	for key, note := range change {
		if text, ok := note.(string); ok {
			p.data[key] = text
		} else {
			delete(p.data, key)
		}
	}
	b.pages[name] = p
}

// Prune removes expired entries from all pages.
func (b *Blocklist) Prune(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	changes := map[string]map[string]any{}
	for name, p := range b.pages {
		if change := expired(p.data, now); len(change) > 0 {
			changes[name] = change
		}
	}
	b.mu.Unlock()
	for name, change := range changes {
		if err := b.write(ctx, name, change, true); err != nil && !kube.IsNotFound(err) {
			return fmt.Errorf("remove expired entries from ConfigMap %s: %w", name, err)
		}
	}
	return nil
}
