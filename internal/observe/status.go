package observe

import (
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// SyncMetrics returns the metrics of the engine's status of one or more agents.
func SyncMetrics(prefix string, agents map[string]engine.Status, now engine.Time) []Metric {
	scopes := 0
	for _, s := range agents {
		scopes += len(s.Scopes)
	}
	of := func(n int, name, help string) *Metric {
		return &Metric{Name: prefix + name, Help: help, Samples: make([]Sample, 0, n)}
	}
	gauge := func(name, help string) *Metric { return of(scopes, name, help) }
	connected := of(len(agents), "_connected", "1 if the session with the agent is open, otherwise 0.")
	untrusted := of(len(agents), "_store_untrusted", "1 if a store, on either side, was restored or replaced and waits for a confirmation.")
	items := gauge("_items", "Items in a scope.")
	dirty := gauge("_dirty_items", "Changed items that have not been delivered.")
	flight := gauge("_unacked_items", "Items that were sent and not acknowledged.")
	bytes := gauge("_unacked_bytes", "Bytes that were sent and not acknowledged.")
	oldest := gauge("_oldest_unacked_seconds", "Age of the oldest unacknowledged item.")
	rejected := gauge("_rejected_items", "Items that the replica rejects.")
	divergent := gauge("_divergent_items", "Replica objects that differ from the owner's version.")
	lossy := gauge("_lossy_items", "Replica objects that count as equal although a field is stored differently.")
	unexpected := of(len(agents), "_unexpected_messages_total", "Messages for an unknown scope or role. A non-zero rate indicates a faulty or hostile peer.")
	unexpected.Counter = true
	held := gauge("_held_deletions", "Deletions that wait for confirmation. With role owner, the other side holds them.")
	inSync := gauge("_last_in_sync_age_seconds", "Seconds since both sides were last in sync. Absent until the first comparison of the session.")
	all := []*Metric{connected, untrusted, items, dirty, flight, bytes, oldest, rejected, divergent, lossy, held, inSync, unexpected}

	for _, name := range slices.Sorted(maps.Keys(agents)) {
		s := agents[name]
		add := func(m *Metric, v float64, labels []string) {
			m.Samples = append(m.Samples, Sample{Labels: labels, Value: v})
		}
		agent := []string{"agent", name}
		add(connected, number(s.Connected), agent)
		add(untrusted, number(s.StoreHoldID != "" || heldByPeer(s.RemoteHolds, "") != nil), agent)
		add(unexpected, float64(s.UnexpectedMessages), agent)
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
				deletions := 0.0
				if h := heldByPeer(s.RemoteHolds, sc.Name); h != nil {
					deletions = float64(h.Count)
				}
				add(held, deletions, scope)
			} else {
				add(held, float64(sc.Held), scope)
				add(divergent, float64(sc.Diverged), scope)
				add(lossy, float64(sc.Lossy), scope)
			}
			if sc.InSyncAt != 0 {
				add(inSync, float64(now-sc.InSyncAt)/1000, scope)
			}
		}
	}
	out := make([]Metric, 0, len(all))
	for _, m := range all {
		out = append(out, *m)
	}
	return out
}

// heldByPeer returns what the other side holds in a scope, or nil. Without a scope, it holds this side's store.
func heldByPeer(holds []engine.Held, scope string) *engine.Held {
	for i := range holds {
		if holds[i].Scope == scope {
			return &holds[i]
		}
	}
	return nil
}

// WriteMetrics returns the metrics of writes to the API server.
func WriteMetrics(prefix string, waiting, limit int, unavailable uint64, outage bool) []Metric {
	return []Metric{
		Gauge(prefix+"_api_write_outage", "1 if the API server does not accept writes because it is overloaded, out of storage or unreachable.", number(outage)),
		Gauge(prefix+"_api_writes_limit", "Writes that may be in flight. Reduced during and after a write outage.", float64(limit)),
		Gauge(prefix+"_api_writes_waiting", "Queued writes.", float64(waiting)),
		Counter(prefix+"_api_writes_unavailable_total", "Writes that failed because the API server was unavailable.", float64(unavailable)),
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
