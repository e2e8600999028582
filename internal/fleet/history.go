package fleet

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// historyMark returns the history mark of an Agent. If it has none, the marks begin with another record than before: the
// status was lost, for example because an older CRD does not have the field, and a lower number would look like a restore.
func (rec agentRecord) historyMark() engine.HistoryMark {
	switch {
	case rec.Status.HistoryRecord != "":
		return engine.HistoryMark{Record: rec.Status.HistoryRecord, Number: rec.Status.HistoryMark}
	case rec.UID != "":
		return engine.HistoryMark{Record: string(rec.UID) + "-" + rec.ResourceVersion}
	}
	return engine.HistoryMark{}
}

// setHistoryMark sets the next history mark in a status that is written for another reason, if the agent has a session here
// and no mark covers what the hub has for it. A mark alone is not worth a write. If the Agent has an earlier mark than the
// session, the hub was restored during the session.
func (v statusInputs) setHistoryMark(s *v1alpha1.Status) {
	t := v.session
	if t == nil || !t.open || t.engine == nil || t.engine.Unmarked == 0 || s.Principal != v.replica || !t.is(s.Session) {
		return
	}
	switch sent := t.engine.Mark; {
	case s.HistoryRecord == "" && sent.Number == 0 && strings.HasPrefix(sent.Record, string(v.rec.UID)+"-"):
		s.HistoryRecord, s.HistoryMark = sent.Record, 1
	case s.HistoryRecord != "" && sent.Record == s.HistoryRecord && sent.Number <= s.HistoryMark && s.HistoryMark < math.MaxInt64:
		s.HistoryMark++
	}
}

// sendHistoryMark lets the core send a mark to the agent if it is stored.
func (r *StatusWriter) sendHistoryMark(ctx context.Context, v statusInputs, o *kind.Object) error {
	stored, err := readAgent(o)
	if err != nil {
		return err
	}
	if stored.Status.HistoryRecord == "" || stored.historyMark() == v.rec.historyMark() {
		return nil // the API server does not store marks
	}
	return r.registry.cfg.Post(ctx, reconcile.FromPeer{Agent: v.rec.Name, Input: engine.Marked{Mark: stored.historyMark(), Revision: v.session.engine.Unmarked}})
}

// parallelMarks limits concurrent writes of ResetHistoryMarks.
const parallelMarks = 16

// ResetHistoryMarks sets the history marks of all Agents to 0. It must be called if the hub's API server was restored from a
// backup while this replica watched it. What is lost may be newer than the last mark, and the revision can grow past the one
// that an agent knows before it connects again. After this, an agent that knows a mark does not trust the store until a user
// accepts it. It retries until ctx ends, because the API server may just have started.
func (r *Registry) ResetHistoryMarks(ctx context.Context) error {
	var all errgroup.Group
	all.SetLimit(parallelMarks)
	for _, name := range r.objectNames() {
		rec, known, _, _ := r.object(name)
		if !known || rec.Status.HistoryRecord == "" {
			continue
		}
		all.Go(func() error {
			for {
				_, err := r.cfg.Client.PatchStatus(ctx, r.ref(name), map[string]any{"metadata": map[string]any{"uid": rec.UID},
					"status": map[string]any{"historyRecord": rec.Status.HistoryRecord, "historyMark": 0}})
				if err == nil || kube.IsNotFound(err) || kube.IsConflict(err) { // newer than the backup, or another one has its name
					return nil
				}
				if !backoff.Sleep(ctx, resetPause) {
					return fmt.Errorf("reset the history mark of Agent %s: %w", name, err)
				}
			}
		})
	}
	return all.Wait()
}

// resetPause is the pause between two attempts to reset a mark.
const resetPause = time.Second

// HistoryMark returns the history mark of an agent. known is what the agent knows of the hub's store. If its mark is not the
// one that the watch has shown, the Agent is read again: another principal replica may have recorded it.
func (r *Registry) HistoryMark(ctx context.Context, agent string, known engine.HistoryMark) (engine.HistoryMark, error) {
	rec, _, _, _ := r.object(agent)
	mark := rec.historyMark()
	if known.Record == "" || known.Record == mark.Record && known.Number <= mark.Number {
		return mark, nil
	}
	o, err := r.fetch(ctx, agent)
	if err != nil || o == nil {
		return engine.HistoryMark{}, err
	}
	rec, err = readAgent(o)
	return rec.historyMark(), err
}
