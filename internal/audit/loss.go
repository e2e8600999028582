package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// lossByAgent counts lost lines. The zero value is ready to use. The caller of its methods must hold Log.mu.
type lossByAgent struct {
	total map[string]uint64
	due   map[string]uint64 // not reported in the audit log yet
}

// maxLossAgents bounds the agents with own counts. Lines of others are counted without a name.
const maxLossAgents = 4096

func (l *lossByAgent) add(agent string) {
	if l.total == nil {
		l.total, l.due = map[string]uint64{}, map[string]uint64{}
	}
	if _, known := l.total[agent]; !known && len(l.total) >= maxLossAgents {
		agent = ""
	}
	l.total[agent]++
	l.due[agent]++
}

// failed counts a line that could not be written. If it is a line about losses, they are due again.
func (l *lossByAgent) failed(r Record) {
	if r.Type == Loss {
		l.due[r.Agent] += r.lost
		return
	}
	l.add(r.Agent)
}

// maxLossLines bounds the lines about losses that follow one batch. The others follow the next batches.
const maxLossLines = 64

// report returns a line for each agent that lost lines since its last one.
func (l *lossByAgent) report(side Side) (out []Record) {
	for _, agent := range slices.Sorted(maps.Keys(l.due)) {
		if len(out) == maxLossLines {
			break
		}
		out = append(out, Record{Time: time.Now().UTC(), Side: side, Agent: agent, Type: Loss, Action: "lose", Caller: UnknownCaller, Result: Failed,
			Reason: fmt.Sprintf("lost lines of the audit log: %d", l.due[agent]), lost: l.due[agent]})
		delete(l.due, agent)
	}
	return out
}
