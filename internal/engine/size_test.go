package engine

// estimate is roughly the size of a message on the wire: an envelope, and for every field a tag, a length where it has
// one, and its bytes.
func estimate(m Message) int {
	const envelope = 110
	key := func(k Key) int { return 6 + len(k.Namespace) + len(k.Name) }
	roots := func(items []Root) int {
		n := 0
		for _, r := range items {
			n += 2 + 2 + len(r.Scope) + 4 + 18 + 6
		}
		return n
	}
	n := envelope
	switch m := m.(type) {
	case Hello:
		n += 200
	case Welcome:
		n += 250
	case Roots:
		n += roots(m.Items) + roots(m.Same)
	case Same:
		n += roots(m.Items)
	case Ask:
		n += len(m.Scope) + 12 + 13*len(m.Prefixes)
	case Answer:
		n += len(m.Scope) + 12
		for _, b := range m.Branches {
			n += 18 + 22*len(b.Sums) + 30*len(b.Items)
		}
	case Want:
		n += len(m.Scope) + 4 + 8*len(m.Hashes)
	case Delta:
		n += len(m.Scope) + 4
		for _, it := range m.Items {
			n += 12 + key(it.Key) + 18 + len(it.Content) + len(it.Extra) + 6
		}
	case Ack:
		n += len(m.Scope) + 4
		for _, it := range m.Items {
			n += 12 + key(it.Key) + 18 + len(it.Code) + len(it.Message)
		}
	case Finished:
		n += len(m.Scope) + 4 + key(m.Key) + 18
	case Held:
		n += len(m.Scope) + len(m.ID) + len(m.Reason) + 16
		for _, k := range m.Sample {
			n += key(k)
		}
	case WriteOutage:
		n += len(m.Reason) + 2
	case Confirm:
		n += len(m.Scope) + len(m.ID) + 4
	case Bye:
		n += len(m.Code) + len(m.Message) + 8
	}
	return n
}
