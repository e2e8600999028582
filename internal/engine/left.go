package engine

// leave takes what the object holds as equal to the item that the owner has just
// sent, because that item asks to leave the object alone. It is an alias that is
// not recorded on the object and that users are not told of. It ends with the next
// item for the key, and when the object changes.
func (r *replica) leave(it *replicaItem) {
	if !it.exists || !it.owned || it.want.IsZero() {
		return
	}
	r.setAlias(it, Alias{Written: it.want, Stored: it.stored}, false)
	delete(r.redo, it.hash)
	r.update(it)
}
