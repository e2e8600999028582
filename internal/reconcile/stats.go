package reconcile

// Stats is how much a Node keeps in memory, to be compared with what there is.
type Stats struct {
	Objects int // in the cache
	Jobs    int // to be done, or under way
	Writing int // writes that are not answered
	Notes   int // whatever else is kept for an object: retries, refreshes, ends, what is frozen
}

// Stats takes stock.
func (n *Reconciler) Stats() Stats {
	l := Stats{Writing: len(n.writing), Notes: len(n.retries) + len(n.staleQueues) + len(n.deleted) + len(n.credentialArrivals.at) + len(n.credentialArrivals.asked) +
		len(n.placements.undecided) + len(n.repositories.deferred) + len(n.repositories.reads) + len(n.repositories.verifiedAt) + len(n.repositories.rulesChangedAt)}
	for _, t := range n.cache.tables {
		l.Objects += len(t.objects)
		l.Notes += len(t.gone)
	}
	for _, d := range n.objectQueues {
		l.Jobs += len(d.jobs)
	}
	for _, link := range n.syncs {
		l.Notes += len(link.refreshes) + len(link.refreshed) + len(link.finalized) + len(link.conditionsWrittenAt) + len(link.unsendable) + len(link.frozen)
	}
	return l
}
