package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// This file compares the objects of a standby with those of the hub that was active before, see kind.ComparedItems. Both are read
// in pages at the same time, one kind after the other, and only hashes are kept.

// maxNamedDifferences bounds the differences that are printed.
const maxNamedDifferences = 5

// hubDifferences are objects of a hub that its standby lacks or has otherwise.
type hubDifferences struct {
	first []string // with their states
	count int
	store engine.Store // of the hub, with the revision up to which its objects were compared
}

func (d *hubDifferences) add(r kind.Resource, state string, keys []engine.Key) {
	d.count += len(keys)
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxNamedDifferences-len(d.first))] {
		d.first = append(d.first, fmt.Sprintf("%s %s (%s)", r.Kind, name, state))
	}
}

func (d *hubDifferences) String() string {
	text := strings.Join(d.first, ", ")
	if more := d.count - len(d.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// hubSide is one of two hubs in a comparison.
type hubSide struct {
	*hubInfo
	env     *kind.Env
	watches []kube.Watch
}

func (h *hubInfo) side(ctx context.Context, side kind.Side) (*hubSide, error) {
	set, err := h.principalSettings(ctx)
	if err != nil {
		return nil, err
	}
	var namespaces []string
	if set.on("namespaced") {
		namespaces = commaList(set.get("allowed-namespaces"))
	}
	pki := cmp.Or(h.pki, set.get("pki-namespace"), h.namespace)
	return &hubSide{hubInfo: h, watches: kube.StandbyWatches(h.namespace, pki, namespaces),
		env: &kind.Env{Side: side, Agent: kind.Agent{Mode: kind.Standby}, HubArgoNamespace: h.namespace, SpokeArgoNamespace: h.namespace,
			PKINamespace: pki, PrincipalUID: h.state.Identity}}, nil
}

// items returns the items of the objects of a kind, and the revision as of which they were read. Each watch has items of its own,
// because its objects may have to be read again.
func (s *hubSide) items(ctx context.Context, k kind.StandbyKind, add func(kind.ComparedItems, kind.StandbyKind, *kind.Object, *kind.Env)) (all kind.ComparedItems, revision uint64, err error) {
	all, revision = kind.ComparedItems{}, math.MaxUint64
	for _, w := range s.watches {
		if w.Resource != k.Resource() {
			continue
		}
		part := kind.ComparedItems{}
		read, err := s.raw.ListPages(ctx, w, func(page []*kind.Object) {
			for _, o := range page {
				add(part, k, o, s.env)
			}
		}, func() { clear(part) })
		if err != nil {
			return nil, 0, fmt.Errorf("list %s of %s: %w", w.Resource.Plural, s, s.explain(err))
		}
		maps.Copy(all, part)
		revision = min(revision, kube.ParseResourceVersion(read))
	}
	if revision == math.MaxUint64 {
		return nil, 0, fmt.Errorf("%s of %s are not read", k.Resource().Plural, s)
	}
	return all, revision, nil
}

// compareHubs returns what a standby lacks of a hub that was active.
func compareHubs(ctx context.Context, active, standby *hubInfo) (*hubDifferences, error) {
	owner, err := active.side(ctx, kind.Hub)
	if err != nil {
		return nil, err
	}
	replica, err := standby.side(ctx, kind.Spoke)
	if err != nil {
		return nil, err
	}
	if before := active.state.Predecessor; before.UID == standby.uid {
		// As the active hub says in its Welcome. If the standby was restored since, none of its objects counts as received.
		mark, err := standby.markFor(ctx, active)
		if err != nil {
			return nil, err
		}
		if !hubstate.Restored(before.Mark, mark) {
			replica.env.Received = before.Revision
		}
	}
	found := &hubDifferences{store: engine.Store{UID: active.uid, Revision: math.MaxUint64}}
	if found.store.Mark, err = active.markFor(ctx, standby); err != nil {
		return nil, err
	}
	for _, k := range kind.StandbyKinds() {
		if k, ok := k.(kind.StandbyKind); ok {
			if err := found.compare(ctx, k, owner, replica); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// markFor returns the history mark that a hub has for another one.
func (h *hubInfo) markFor(ctx context.Context, other *hubInfo) (engine.HistoryMark, error) {
	o, err := h.raw.Get(ctx, kind.Ref{Resource: kind.Agents, Namespace: h.namespace, Name: hubstate.AgentName(other.uid)})
	if err != nil || o == nil {
		return engine.HistoryMark{}, h.explain(err)
	}
	var agent v1alpha1.Agent
	if err := json.Unmarshal(o.Raw(), &agent); err != nil {
		return engine.HistoryMark{}, fmt.Errorf("read Agent %s of %s: %w", o.Name(), h, err)
	}
	return engine.HistoryMark{Record: agent.Status.HistoryRecord, Number: agent.Status.HistoryMark}, nil
}

func (d *hubDifferences) compare(ctx context.Context, k kind.StandbyKind, owner, replica *hubSide) error {
	var sent, held kind.ComparedItems
	var revision uint64
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		sent, revision, err = owner.items(ctx, k, kind.ComparedItems.AddActive)
		return err
	})
	both.Go(func() (err error) {
		held, _, err = replica.items(ctx, k, kind.ComparedItems.AddStandby)
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	d.store.Revision = min(d.store.Revision, revision)
	missing, differ, deleted := held.Lacks(sent)
	d.add(k.Resource(), "missing", missing)
	d.add(k.Resource(), "differs", differ)
	d.add(k.Resource(), "not deleted", deleted)
	return nil
}

// lacking returns what a promotion of a standby would lose of the hub that was active, or "". Then it returns what of the store of
// that hub was compared.
func lacking(ctx context.Context, h, old *hubInfo) (lost string, compared engine.Store, err error) {
	if !hubstate.MayLack(h.hub(), old.hub()) {
		return "", engine.Store{}, nil // it was active itself
	}
	found, err := compareHubs(ctx, old, h)
	if err != nil {
		return "", engine.Store{}, fmt.Errorf("compare the objects of both hubs: %w", err)
	}
	var what []string
	if h.state.Predecessor.UID != old.uid || h.state.Predecessor.Revision == 0 {
		what = append(what, fmt.Sprintf("%s has never recorded that it had all objects of %s", h, old))
	}
	if found.count > 0 {
		what = append(what, fmt.Sprintf("%s has not received the last state of %s of %s: %s", h, pluralize(found.count, "object"), old, found))
	}
	return strings.Join(what, ", and "), found.store, nil
}

// checkLoss returns an error if a promotion of a standby would lose objects or changes of the hub that was active. If the user
// accepts that, it prints what is lost, and returns whether anything is or may be lost. If nothing is, it returns what of the store
// of that hub was compared.
func (p *Program) checkLoss(ctx context.Context, h, old *hubInfo, accepted bool) (compared engine.Store, loses bool, err error) {
	lost, compared, err := lacking(ctx, h, old)
	switch {
	case err == nil && lost == "":
		return compared, false, nil
	case err != nil && accepted && ctx.Err() == nil:
		p.warn("What %s lacks of %s is unknown: %v", h, old, err)
	case err != nil:
		return engine.Store{}, true, fmt.Errorf("%w. Nothing was changed. To promote %s without the comparison, set --accept-loss", err, h)
	case accepted:
		p.warn("%s", lost)
	case hubstate.UnknownLast(h.hub(), old.hub()):
		return engine.Store{}, true, fmt.Errorf("%s. It is not known which of the hubs was active last, because an older release changed their roles, "+
			"or a promotion was interrupted. Promote the one that was active last, with --accept-loss. Nothing was changed", lost)
	default:
		return engine.Store{}, true, fmt.Errorf("%s. A promotion would lose that. Make %s active again with `argocd-agentctl hub promote --principal-context %s --other-context %s`, "+
			"wait until `argocd-agentctl hub status` shows that everything was received, and repeat the switch. To promote %s nevertheless, set --accept-loss. "+
			"Nothing was changed", lost, old, old.context, h.context, h)
	}
	return engine.Store{}, true, nil
}
