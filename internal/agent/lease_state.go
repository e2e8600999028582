package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// leaseState is the state that survives restarts, stored in a Lease on the spoke: the incarnation of the process, and
// what is known of the hub's store.
type leaseState struct {
	client *kube.Client
	ref    kind.Ref

	incarnation uint64
	accepted    atomic.Bool // the hub's store was accepted: earlier knowledge of it does not count

	mu       sync.Mutex       // held while the Lease is written
	known    reconcile.Memory // content of the Lease
	revision string           // resourceVersion of the Lease
	mark     engine.HistoryMark

	neededMu sync.Mutex
	needed   reconcile.Memory // what removals and commands need that wait for mu
}

const leaseName = "argocd-agent"

const (
	incarnationAnnotation     = kind.Prefix + "incarnation"
	hubStoreAnnotation        = kind.Prefix + "hub-store"
	hubSeenAnnotation         = kind.Prefix + "hub-seen"  // by scope
	commandsAnnotation        = kind.Prefix + "commands"  // started last, separated by spaces
	deletionsAnnotation       = kind.Prefix + "deletions" // that count against the budget of AgentPolicies
	removalsAnnotation        = kind.Prefix + "removals"  // replicas that were deleted for the hub
	hubAnnotation             = kind.Prefix + "hub"       // reconcile.KnownHub as JSON
	suspectAnnotation         = kind.Prefix + "hub-store-suspect"
	generationAnnotation      = kind.Prefix + "hub-generation"         // HUB/NUMBER
	sinceAnnotation           = kind.Prefix + "hub-generation-since"   // NUMBER/SINCE of engine.HubGeneration; older releases leave it unchanged
	generationStoreAnnotation = kind.Prefix + "hub-generation-store"   // NUMBER/UID: the store of that generation; older releases leave it unchanged
	formerAnnotation          = kind.Prefix + "former-hub-generations" // HUB/NUMBER, separated by spaces
	hubMarkAnnotation         = kind.Prefix + "hub-mark"               // RECORD/NUMBER, of the store in hubStoreAnnotation
	historyMarkAnnotation     = kind.Prefix + "history-mark"           // number of this cluster's own mark
)

// loadLeaseState reads the Lease and increments the incarnation. The incarnation also grows with the clock, so that it
// grows even if the Lease was lost.
func loadLeaseState(ctx context.Context, c *kube.Client, namespace string, nowMillis uint64) (*leaseState, error) {
	m := &leaseState{client: c, ref: kind.Ref{Resource: kube.Leases, Namespace: namespace, Name: leaseName}}
	err := m.retry(func() error {
		o, err := c.Get(ctx, m.ref)
		if err != nil {
			return err
		}
		if m.incarnation = nowMillis; o == nil {
			return m.create(ctx)
		}
		before, _ := strconv.ParseUint(o.Annotation(incarnationAnnotation), 10, 64)
		m.incarnation = max(before+1, nowMillis)
		m.read(o)
		return m.patch(ctx, m.annotations())
	})
	return m, err
}

// retry calls write again after a conflict.
func (m *leaseState) retry(write func() error) error {
	err := retry.OnError(wait.Backoff{Steps: 10}, kube.IsConflict, write)
	if kube.IsConflict(err) {
		err = errors.New("too many conflicts: do two agents run in this namespace?")
	}
	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
	}
	return nil
}

func (m *leaseState) read(o *kind.Object) {
	m.revision = o.ResourceVersion()
	m.known = reconcile.Memory{Store: parseStore(o.Annotation(hubStoreAnnotation)), StoreUntrusted: o.Annotation(suspectAnnotation) == "true",
		Seen: reconcile.ParseSeen(o.Annotation(hubSeenAnnotation)), Commands: strings.Fields(o.Annotation(commandsAnnotation)),
		Deletions: reconcile.ParseDeletions(o.Annotation(deletionsAnnotation)), Removals: engine.ParseRemovals(o.Annotation(removalsAnnotation))}
	if err := json.Unmarshal([]byte(o.Annotation(hubAnnotation)), &m.known.Hub); err != nil {
		m.known.Hub = reconcile.KnownHub{} // the next session reports it
	}
	m.known.Generation = parseGeneration(o.Annotation(generationAnnotation), m.known.Hub)
	if since := parseStore(o.Annotation(sinceAnnotation)); since.UID == strconv.FormatUint(m.known.Generation.Number, 10) {
		m.known.Generation.Since = since.Revision
	}
	if number, uid, _ := strings.Cut(o.Annotation(generationStoreAnnotation), "/"); number == strconv.FormatUint(m.known.Generation.Number, 10) {
		m.known.Generation.Store = uid
	}
	for former := range strings.FieldsSeq(o.Annotation(formerAnnotation)) {
		m.known.FormerGenerations = append(m.known.FormerGenerations, parseGeneration(former, reconcile.KnownHub{}))
	}
	m.known.Generation, m.known.FormerGenerations = engine.MergeGenerations(m.known.Generation, m.known.FormerGenerations...)
	if m.known.Store.UID != "" {
		m.known.Store.Mark = engine.ParseHistoryMark(o.Annotation(hubMarkAnnotation))
	}
	m.readMark(o)
}

// reload reads what the Lease contains now. Another process of this agent may have written it.
func (m *leaseState) reload(ctx context.Context) (reconcile.Memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, err := m.client.Get(ctx, m.ref)
	if err != nil {
		return reconcile.Memory{}, fmt.Errorf("read Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
	}
	accepted := m.accepted.Load() // what the Lease says of the hub is about to be replaced
	switch {
	case o != nil && accepted:
		m.readMark(o)
	case o != nil:
		m.read(o)
	}
	if accepted {
		return reconcile.Memory{}, nil
	}
	return m.known, nil
}

// generation returns the latest known generation of the hub.
func (m *leaseState) generation() engine.HubGeneration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known.Generation
}

// isOtherHub reports whether a hub is another one than the one that the agent follows.
func (m *leaseState) isOtherHub(w engine.Welcome) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	trusted := m.known.Store.UID
	if m.known.StoreUntrusted {
		trusted = ""
	}
	return m.known.Generation.IsOtherHub(w, trusted)
}

// follow returns the generation of a hub, with what is known of the one before.
func (m *leaseState) follow(w engine.Welcome) engine.HubGeneration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known.Generation.Follow(w, m.known.Store)
}

// isLatest returns an error if another process of this agent has started since, or if that is unknown.
func (m *leaseState) isLatest(ctx context.Context) error {
	o, err := m.client.Get(ctx, m.ref)
	if err != nil {
		return fmt.Errorf("read Lease %s/%s: %w", m.ref.Namespace, leaseName, err)
	}
	if o == nil || o.Annotation(incarnationAnnotation) != strconv.FormatUint(m.incarnation, 10) {
		return errors.New("another process of this agent has started since")
	}
	return nil
}

func (m *leaseState) create(ctx context.Context) error {
	o, err := m.client.Create(ctx, m.ref, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": leaseName, "namespace": m.ref.Namespace, "annotations": m.annotations()},
	})
	if err == nil {
		m.revision = o.ResourceVersion()
		m.readMark(o)
	}
	return err
}

// patch changes the Lease if it is unchanged since it was read.
func (m *leaseState) patch(ctx context.Context, annotations map[string]string) error {
	o, err := m.client.Patch(ctx, m.ref, map[string]any{"metadata": map[string]any{"resourceVersion": m.revision, "annotations": annotations}})
	if err == nil {
		m.revision = o.ResourceVersion()
	}
	return err
}

// save stores what is known of the hub, if it changed.
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

// atLeast returns when the Lease contains at least need. Concurrent callers share one write.
func (m *leaseState) atLeast(ctx context.Context, need reconcile.Memory) error {
	m.neededMu.Lock()
	m.needed = m.needed.With(need)
	m.neededMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.neededMu.Lock()
	all := m.needed.With(need)
	m.needed = reconcile.Memory{} // also if nothing is written: a user's acceptance may follow, and must not be undone
	m.neededMu.Unlock()
	if m.known.With(all).Equal(m.known) {
		return nil
	}
	return m.write(ctx, all, false)
}

// write merges now into the Lease, because another process of this agent may know more. With exact, it replaces the
// content. The caller must hold m.mu.
func (m *leaseState) write(ctx context.Context, now reconcile.Memory, exact bool) error {
	return m.retry(func() error {
		before, next := m.known, now
		if !exact {
			next = before.With(now)
		}
		if next.Equal(before) {
			return nil
		}
		m.known = next
		err := m.patch(ctx, hubAnnotations(next))
		if kube.IsNotFound(err) { // it was deleted
			err = m.create(ctx)
		}
		if err == nil {
			return nil
		}
		m.known = before
		if kube.IsConflict(err) {
			if failed := m.readAgain(ctx); failed != nil {
				return failed
			}
		}
		return err
	})
}

// readAgain reads the Lease after a conflict. The caller must hold m.mu.
func (m *leaseState) readAgain(ctx context.Context) error {
	o, err := m.client.Get(ctx, m.ref)
	if err == nil && o != nil {
		m.read(o)
	}
	return err
}

func (m *leaseState) annotations() map[string]string {
	all := hubAnnotations(m.known)
	all[incarnationAnnotation] = strconv.FormatUint(m.incarnation, 10)
	return all
}

// hubAnnotations returns what is known of the hub, without the incarnation: a later process may have increased it.
func hubAnnotations(known reconcile.Memory) map[string]string {
	hub, _ := json.Marshal(known.Hub) // plain data
	var former []string
	for _, g := range known.FormerGenerations {
		former = append(former, formatGeneration(g))
	}
	since := ""
	if known.Generation.Since != 0 {
		since = strconv.FormatUint(known.Generation.Number, 10) + "/" + strconv.FormatUint(known.Generation.Since, 10)
	}
	store := ""
	if known.Generation.Store != "" {
		store = strconv.FormatUint(known.Generation.Number, 10) + "/" + known.Generation.Store
	}
	return map[string]string{
		generationAnnotation:      formatGeneration(known.Generation),
		sinceAnnotation:           since,
		generationStoreAnnotation: store,
		formerAnnotation:          strings.Join(former, " "),
		hubAnnotation:             string(hub),
		hubStoreAnnotation:        known.Store.UID + "/" + strconv.FormatUint(known.Store.Revision, 10),
		hubMarkAnnotation:         engine.FormatHistoryMark(known.Store.Mark),
		hubSeenAnnotation:         reconcile.FormatSeen(known.Seen),
		commandsAnnotation:        strings.Join(known.Commands, " "),
		deletionsAnnotation:       reconcile.FormatDeletions(known.Deletions),
		removalsAnnotation:        engine.FormatRemovals(known.Removals),
		suspectAnnotation:         strconv.FormatBool(known.StoreUntrusted),
	}
}

func formatGeneration(g engine.HubGeneration) string {
	if g.Hub == "" {
		return ""
	}
	return g.Hub + "/" + strconv.FormatUint(g.Number, 10)
}

// readMark reads this cluster's own history mark.
func (m *leaseState) readMark(o *kind.Object) {
	number, _ := strconv.ParseUint(o.Annotation(historyMarkAnnotation), 10, 64)
	m.mark = engine.HistoryMark{Record: o.UID(), Number: number}
}

// historyMark returns this cluster's own history mark, as last read.
func (m *leaseState) historyMark() engine.HistoryMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark
}

// recordMark stores the next history mark. If the Lease has an earlier one than the session, the cluster was restored during
// the session, and nothing is stored.
func (m *leaseState) recordMark(ctx context.Context, session engine.HistoryMark) (engine.HistoryMark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.retry(func() error {
		if m.mark.Record != session.Record || m.mark.Number < session.Number {
			return errors.New("the Lease was restored or replaced since the session began")
		}
		next := strconv.FormatUint(m.mark.Number+1, 10)
		err := m.patch(ctx, map[string]string{historyMarkAnnotation: next})
		if kube.IsConflict(err) {
			if failed := m.readAgain(ctx); failed != nil {
				return failed
			}
		}
		return err
	})
	if err != nil {
		return engine.HistoryMark{}, err
	}
	m.mark.Number++
	return m.mark, nil
}

// resetMark sets this cluster's own mark to 0, because the cluster was restored from a backup while this process watched it. The
// hub then does not trust it until a user accepts it, also if the revision has grown past the one that the hub knows. What this
// process knows of the hub is stored with it: the restored Lease knows less. It retries until ctx ends, because the API server
// may just have started.
func (m *leaseState) resetMark(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.known
	reset := func() error {
		return m.retry(func() error {
			if err := m.readAgain(ctx); err != nil {
				return err
			}
			m.known = m.known.With(known)
			annotations := hubAnnotations(m.known)
			annotations[historyMarkAnnotation] = "0"
			return m.patch(ctx, annotations)
		})
	}
	for {
		err := reset()
		if err == nil {
			m.mark.Number = 0
			return nil
		}
		if !backoff.Sleep(ctx, resetPause) {
			return fmt.Errorf("reset the history mark in the Lease: %w", err)
		}
	}
}

// resetPause is the pause between two attempts to reset the mark.
const resetPause = time.Second

// parseGeneration returns the latest generation of the hub. Before the first promotion, the Lease of an older release has none.
func parseGeneration(s string, hub reconcile.KnownHub) engine.HubGeneration {
	if recorded := parseStore(s); recorded.UID != "" {
		return engine.HubGeneration{Hub: recorded.UID, Number: recorded.Revision}
	}
	if hub.PrincipalUID == "" {
		return engine.HubGeneration{}
	}
	return engine.HubGeneration{Hub: hub.PrincipalUID, Number: 1}
}

func parseStore(s string) engine.Store {
	uid, rev, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(rev, 10, 64)
	if !ok || err != nil || uid == "" {
		return engine.Store{}
	}
	return engine.Store{UID: uid, Revision: n}
}
