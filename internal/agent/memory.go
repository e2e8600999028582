package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// memory is what an agent remembers across restarts, in a Lease of its own
// cluster: how often it has started, and how far it has seen the hub's store.
// Everything else it reads off its objects.
type memory struct {
	client *kube.Client
	ref    kind.Ref

	incarnation uint64
	store       engine.Store
	suspect     bool
}

const leaseName = "argocd-agent"

const (
	incarnationAnnotation = kind.Prefix + "incarnation"
	hubStoreAnnotation    = kind.Prefix + "hub-store"
	suspectAnnotation     = kind.Prefix + "hub-store-suspect"
)

// recall reads the Lease and counts this start in it. The incarnation also
// grows with the clock, so that it does so even if the Lease was lost.
func recall(ctx context.Context, c *kube.Client, namespace string, nowMillis uint64) (*memory, error) {
	m := &memory{client: c, ref: kind.Ref{Resource: kube.Leases, Namespace: namespace, Name: leaseName}}
	for range 10 {
		o, err := c.Get(ctx, m.ref)
		if err != nil {
			return nil, fmt.Errorf("read the Lease %s/%s: %w", namespace, leaseName, err)
		}
		if o == nil {
			m.incarnation = nowMillis
			_, err = c.Create(ctx, m.ref, map[string]any{
				"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
				"metadata": map[string]any{"name": leaseName, "namespace": namespace, "annotations": m.annotations()},
			})
		} else {
			before, _ := strconv.ParseUint(o.Annotation(incarnationAnnotation), 10, 64)
			m.incarnation = max(before+1, nowMillis)
			m.store = parseStore(o.Annotation(hubStoreAnnotation))
			m.suspect = o.Annotation(suspectAnnotation) == "true"
			_, err = c.Patch(ctx, m.ref, map[string]any{"metadata": map[string]any{
				"resourceVersion": o.ResourceVersion(), "annotations": m.annotations()}})
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

// remember writes down how far the hub's store was seen, if that is news.
func (m *memory) remember(ctx context.Context, store engine.Store, suspect bool) error {
	if store == m.store && suspect == m.suspect {
		return nil
	}
	was, wasSuspect := m.store, m.suspect
	m.store, m.suspect = store, suspect
	if _, err := m.client.Patch(ctx, m.ref, map[string]any{"metadata": map[string]any{"annotations": m.seen()}}); err != nil {
		m.store, m.suspect = was, wasSuspect
		return fmt.Errorf("write the Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
	}
	return nil
}

func (m *memory) annotations() map[string]string {
	all := m.seen()
	all[incarnationAnnotation] = strconv.FormatUint(m.incarnation, 10)
	return all
}

// seen is what is known of the hub. The incarnation is not part of it: a later
// process of this agent may have counted itself since.
func (m *memory) seen() map[string]string {
	return map[string]string{
		hubStoreAnnotation: m.store.UID + "/" + strconv.FormatUint(m.store.Revision, 10),
		suspectAnnotation:  strconv.FormatBool(m.suspect),
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
