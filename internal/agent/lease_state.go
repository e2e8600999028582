package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// leaseState is what an agent remembers across restarts, in a Lease of its own
// cluster: how often it has started, and how far it has seen the hub's store.
// Everything else it reads off its objects.
type leaseState struct {
	client *kube.Client
	ref    kind.Ref

	incarnation uint64
	accepted    atomic.Bool // the hub's store is accepted as it is, however old: what was known before does not count

	mu       sync.Mutex       // held while the Lease is written; of the two below, once the agent runs
	known    reconcile.Memory // what the Lease says
	revision string           // of the Lease

	asking sync.Mutex
	asked  reconcile.Memory // what removals and commands that wait for mu need at least
}

const leaseName = "argocd-agent"

const (
	incarnationAnnotation = kind.Prefix + "incarnation"
	hubStoreAnnotation    = kind.Prefix + "hub-store"
	hubSeenAnnotation     = kind.Prefix + "hub-seen" // by scope
	commandsAnnotation    = kind.Prefix + "commands" // begun last, separated by spaces
	suspectAnnotation     = kind.Prefix + "hub-store-suspect"
)

// loadLeaseState reads the Lease and counts this start in it. The incarnation also
// grows with the clock, so that it does so even if the Lease was lost.
func loadLeaseState(ctx context.Context, c *kube.Client, namespace string, nowMillis uint64) (*leaseState, error) {
	m := &leaseState{client: c, ref: kind.Ref{Resource: kube.Leases, Namespace: namespace, Name: leaseName}}
	for range leaseTries {
		o, err := c.Get(ctx, m.ref)
		if err != nil {
			return nil, fmt.Errorf("read the Lease %s/%s: %w", namespace, leaseName, err)
		}
		if m.incarnation = nowMillis; o == nil {
			err = m.create(ctx)
		} else {
			before, _ := strconv.ParseUint(o.Annotation(incarnationAnnotation), 10, 64)
			m.incarnation = max(before+1, nowMillis)
			m.read(o)
			err = m.patch(ctx, m.annotations())
		}
		if err == nil {
			return m, nil
		}
		if !kube.IsConflict(err) {
			return nil, fmt.Errorf("write the Lease %s/%s: %w", namespace, leaseName, err)
		}
	}
	return nil, fmt.Errorf("write the Lease %s/%s: it changes all the time; are two agents running in this namespace?", namespace, leaseName)
}

// leaseTries is how often a write of the Lease is tried that somebody else's has
// come before.
const leaseTries = 10

// read takes over what the Lease says.
func (m *leaseState) read(o *kind.Object) {
	m.revision = o.ResourceVersion()
	m.known = reconcile.Memory{Store: parseStore(o.Annotation(hubStoreAnnotation)), StoreUntrusted: o.Annotation(suspectAnnotation) == "true",
		Seen: reconcile.ParseSeen(o.Annotation(hubSeenAnnotation)), Commands: strings.Fields(o.Annotation(commandsAnnotation))}
}

func (m *leaseState) create(ctx context.Context) error {
	o, err := m.client.Create(ctx, m.ref, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": leaseName, "namespace": m.ref.Namespace, "annotations": m.annotations()},
	})
	if err == nil {
		m.revision = o.ResourceVersion()
	}
	return err
}

// patch changes the Lease, if it is as it was last read.
func (m *leaseState) patch(ctx context.Context, annotations map[string]string) error {
	o, err := m.client.Patch(ctx, m.ref, map[string]any{"metadata": map[string]any{"resourceVersion": m.revision, "annotations": annotations}})
	if err == nil {
		m.revision = o.ResourceVersion()
	}
	return err
}

// save writes down what is known of the hub, if that is news.
func (m *leaseState) save(ctx context.Context, now reconcile.Memory) error {
	exact := m.accepted.Swap(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.write(ctx, now, exact)
	if err != nil && exact {
		m.accepted.Store(true)
	}
	return err
}

// atLeast returns when the Lease says at least what a removal or a command needs to
// be known for good. Of those that wait at the same time, one write does for all.
func (m *leaseState) atLeast(ctx context.Context, need reconcile.Memory) error {
	m.asking.Lock()
	m.asked = m.asked.With(need)
	m.asking.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known.With(need).Equal(m.known) {
		return nil
	}
	m.asking.Lock()
	all := m.asked.With(need)
	m.asked = reconcile.Memory{}
	m.asking.Unlock()
	return m.write(ctx, all, false)
}

// write has the Lease say what is known now, and what it says already: another
// process of this agent may know more. With exact, what it says does not count.
// The caller must hold m.mu.
func (m *leaseState) write(ctx context.Context, now reconcile.Memory, exact bool) error {
	for range leaseTries {
		before := m.known
		next := now
		if !exact {
			next = before.With(now)
		}
		if next.Equal(before) {
			return nil
		}
		err := m.patch(ctx, seen(next))
		switch {
		case err == nil:
			m.known = next
			return nil
		case kube.IsNotFound(err): // somebody has deleted it
			m.known = next
			if err = m.create(ctx); err == nil {
				return nil
			}
			m.known = before
		}
		if !kube.IsConflict(err) {
			return fmt.Errorf("write the Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
		}
		o, err := m.client.Get(ctx, m.ref)
		if err != nil {
			return fmt.Errorf("read the Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
		}
		if o != nil {
			m.read(o)
		}
	}
	return fmt.Errorf("write the Lease %s/%s: it changes all the time; are two agents running in this namespace?", m.ref.Namespace, leaseName)
}

func (m *leaseState) annotations() map[string]string {
	all := seen(m.known)
	all[incarnationAnnotation] = strconv.FormatUint(m.incarnation, 10)
	return all
}

// seen is what is known of the hub. The incarnation is not part of it: a later
// process of this agent may have counted itself since.
func seen(known reconcile.Memory) map[string]string {
	return map[string]string{
		hubStoreAnnotation: known.Store.UID + "/" + strconv.FormatUint(known.Store.Revision, 10),
		hubSeenAnnotation:  reconcile.FormatSeen(known.Seen),
		commandsAnnotation: strings.Join(known.Commands, " "),
		suspectAnnotation:  strconv.FormatBool(known.StoreUntrusted),
	}
}

func parseStore(s string) engine.Store {
	uid, rev, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(rev, 10, 64)
	if !ok || err != nil || uid == "" {
		return engine.Store{}
	}
	return engine.Store{UID: uid, Revision: n}
}
