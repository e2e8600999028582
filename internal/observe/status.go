package observe

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// SyncMetrics turns the engine's view of one or more agents into metrics. Series
// of an agent that is gone go with it: nothing is kept between two calls.
func SyncMetrics(prefix string, agents map[string]engine.Status, now engine.Time) []Metric {
	scopes := 0
	for _, s := range agents {
		scopes += len(s.Scopes)
	}
	of := func(n int, name, help string) *Metric {
		return &Metric{Name: prefix + name, Help: help, Samples: make([]Sample, 0, n)}
	}
	gauge := func(name, help string) *Metric { return of(scopes, name, help) }
	connected := of(len(agents), "_connected", "Whether the session with the agent is open (1) or not (0).")
	suspect := of(len(agents), "_store_suspect", "Whether the other side's store went back in time and waits for a confirmation.")
	items := gauge("_items", "Items in a scope, by the side that counts them.")
	dirty := gauge("_dirty_items", "Items of this side's that are known to differ and have not been delivered.")
	flight := gauge("_unacked_items", "Items that were sent and have not been answered.")
	bytes := gauge("_unacked_bytes", "Bytes that were sent and have not been answered.")
	oldest := gauge("_oldest_unacked_seconds", "Age of the oldest item without an answer.")
	rejected := gauge("_rejected_items", "Items that the replica refuses.")
	divergent := gauge("_divergent_items", "Objects of this side's that are known not to be as the other side has them.")
	lossy := gauge("_lossy_items", "Objects of this side's that count as equal although a field is not stored as the other side has it.")
	strays := of(len(agents), "_stray_messages_total", "Messages for something that this side does not have: a sign of a broken or hostile peer.")
	strays.Counter = true
	held := gauge("_held_deletions", "Deletions that wait for a confirmation.")
	proven := gauge("_proven_age_seconds", "Time since the two sides were last proven equal; absent if not yet in this session.")
	all := []*Metric{connected, suspect, items, dirty, flight, bytes, oldest, rejected, divergent, lossy, held, proven, strays}

	names := make([]string, 0, len(agents))
	for name := range agents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s := agents[name]
		add := func(m *Metric, v float64, labels []string) {
			m.Samples = append(m.Samples, Sample{Labels: labels, Value: v})
		}
		agent := []string{"agent", name}
		add(connected, number(s.Connected), agent)
		add(suspect, number(s.StoreHoldID != ""), agent)
		add(strays, float64(s.UnexpectedMessages), agent)
		for _, sc := range s.Scopes {
			role := "owner"
			if sc.Role == engine.Replica {
				role = "replica"
			}
			scope := []string{"agent", name, "scope", sc.Name, "role", role}
			add(items, float64(sc.Items), scope)
			add(rejected, float64(sc.Rejected), scope)
			if sc.Role == engine.Owner {
				add(dirty, float64(sc.Dirty), scope)
				add(flight, float64(sc.InFlight), scope)
				add(bytes, float64(sc.Bytes), scope)
				age := 0.0
				if sc.OldestAt != 0 {
					age = float64(now-sc.OldestAt) / 1000
				}
				add(oldest, age, scope)
			} else {
				add(held, float64(sc.Held), scope)
				add(divergent, float64(sc.Diverged), scope)
				add(lossy, float64(sc.Lossy), scope)
			}
			if sc.InSyncAt != 0 {
				add(proven, float64(now-sc.InSyncAt)/1000, scope)
			}
		}
	}
	out := make([]Metric, 0, len(all))
	for _, m := range all {
		out = append(out, *m)
	}
	return out
}

// WriteMetrics tells how a program's writing to its API server gets on.
func WriteMetrics(prefix string, waiting, limit int, refused uint64, trouble bool) []Metric {
	return []Metric{
		Gauge(prefix+"_api_trouble", "Whether the API server cannot take writes just now (1): it is overloaded, out of space or away.", number(trouble)),
		Gauge(prefix+"_api_writes_limit", "Writes that may be under way at once; fewer in and after trouble of the API server.", float64(limit)),
		Gauge(prefix+"_api_writes_waiting", "Writes that wait for their turn.", float64(waiting)),
		Counter(prefix+"_api_writes_refused_total", "Writes that the API server could not serve, whatever they were about.", float64(refused)),
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
