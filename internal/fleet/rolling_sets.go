package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// rollingSets knows which ApplicationSets have the strategy RollingSync. It reads those of which an agent with
// Applications is disconnected.
type rollingSets struct {
	client *kube.Client
	log    *slog.Logger
	failed logonce.One

	mu   sync.Mutex
	sets map[kind.Ref]bool // ApplicationSet → has RollingSync
}

// maxRollingSets bounds the known ApplicationSets. Others are read for each of their Applications.
const maxRollingSets = 10_000

func newRollingSets(client *kube.Client, log *slog.Logger) *rollingSets {
	return &rollingSets{client: client, log: log, sets: map[kind.Ref]bool{}}
}

// cached reports whether an Application is of an ApplicationSet with RollingSync. It returns false if that has to be read.
func (s *rollingSets) cached(o *kind.Object) (rolling, known bool) {
	ref, ok := kind.ApplicationSetOf(o)
	if !ok {
		return false, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rolling, known = s.sets[ref]
	return rolling, known
}

// read reads the ApplicationSet of an Application.
func (s *rollingSets) read(ctx context.Context, o *kind.Object) (rolling bool, err error) {
	ref, ok := kind.ApplicationSetOf(o)
	if !ok {
		return false, nil
	}
	if rolling, err = s.get(ctx, ref); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sets) < maxRollingSets {
		s.sets[ref] = rolling
	}
	return rolling, nil
}

// get reads an ApplicationSet. If that is not permitted, it counts as one without RollingSync.
func (s *rollingSets) get(ctx context.Context, ref kind.Ref) (rolling bool, err error) {
	set, err := s.client.Get(ctx, ref)
	switch {
	case kube.IsRejected(err):
		if s.failed.Changed(err.Error()) {
			s.log.WarnContext(ctx, "Failed to read ApplicationSets, health of their Applications stays while agents are disconnected", "error", err)
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get ApplicationSet %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return set != nil && kind.IsRollingSync(set), nil
}

// refresh reads the known ApplicationSets again.
func (s *rollingSets) refresh(ctx context.Context) {
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.sets))
	s.mu.Unlock()
	for _, ref := range known {
		rolling, err := s.get(ctx, ref)
		s.mu.Lock()
		if err == nil {
			s.sets[ref] = rolling
		}
		s.mu.Unlock()
	}
}

// clear forgets all ApplicationSets.
func (s *rollingSets) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sets)
}
