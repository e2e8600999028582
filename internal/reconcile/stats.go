package reconcile

import "slices"

// Stats is the size of what a Reconciler keeps in memory.
type Stats struct {
	Objects int // in the cache
	Jobs    int // queued or running
	Writing int // writes without a result
	Notes   int // other notes about objects: retries, refreshes, finalized and frozen ones
}

func (n *Reconciler) Stats() Stats {
	l := Stats{Writing: len(n.writing), Notes: len(n.retries) + len(n.restores) + len(n.staleQueues) + len(n.deleted) + len(n.credentialArrivals.at) + len(n.credentialArrivals.asked) +
		len(n.placements.undecided) + len(n.repositories.deferred) + len(n.repositories.reads) + len(n.repositories.verifiedAt) + len(n.repositories.rulesChangedAt)}
	for _, t := range n.cache.tables {
		l.Objects += len(t.objects)
		for _, p := range slices.Concat(t.parts.all, []*part{t.parts.unwatched}) {
			l.Notes += len(p.gone)
		}
	}
	for _, d := range n.objectQueues {
		l.Jobs += len(d.jobs)
	}
	for _, sync := range n.syncs {
		l.Notes += len(sync.refreshes) + len(sync.refreshed) + len(sync.finalized) + len(sync.conditionsWrittenAt) + len(sync.unsendable) + len(sync.ending) + len(sync.frozen)
	}
	return l
}
