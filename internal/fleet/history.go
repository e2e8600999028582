package fleet

import (
	"context"
	"math"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// historyMark returns the history mark of an Agent. Its numbers have a meaning only for this Agent.
func (rec agentRecord) historyMark() engine.HistoryMark {
	return engine.HistoryMark{Record: string(rec.UID), Number: rec.Status.HistoryMark}
}

// historyMark returns the history mark for a status that is written for another reason: the next one if the agent has a
// session here and no mark covers what the hub has for it. A mark alone is not worth a write. If the Agent has an earlier
// mark than the session, the hub was restored during the session.
func (v statusInputs) historyMark(s v1alpha1.Status) uint64 {
	t := v.session
	if t == nil || !t.open || t.engine == nil || t.engine.Unmarked == 0 || s.Principal != v.replica || !t.is(s.Session) {
		return s.HistoryMark
	}
	if sent := t.engine.Mark; sent.Record != string(v.rec.UID) || sent.Number > s.HistoryMark || s.HistoryMark >= math.MaxInt64 {
		return s.HistoryMark
	}
	return s.HistoryMark + 1
}

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
