package query

import "errors"

// Update is what changed in the result of a query.
type Update struct {
	Changed []Application `json:"changed,omitempty"` // new in the result, or changed
	Removed []Key         `json:"removed,omitempty"` // no longer in the result
	Watch   string        `json:"watch"`             // token of the next Update
}

// ErrTimeWatch reports a query whose result changes although no Application does.
var ErrTimeWatch = errors.New("freshness and changed cannot be watched, because their result changes with time: remove them from the query, or repeat the search")

// Update returns how the changes affect the result of a query. Several changes of one Application become one.
func (c Changes) Update(q Query, scope Scope, clock Clock) Update {
	out := Update{Watch: encodeToken(watchToken{Version: tokenVersion, Kind: "watch", Instance: c.instance, Sequence: c.sequence})}
	m := newMatcher(q, scope, clock, 0) // the rows are not of one Snapshot
	merged := map[Key]int{}
	var all []change
	for _, one := range c.changes {
		key := one.key()
		if i, known := merged[key]; known {
			all[i].after = one.after
			continue
		}
		merged[key] = len(all)
		all = append(all, one)
	}
	for _, one := range all {
		switch {
		case one.after != nil && m.matches(one.after):
			out.Changed = append(out.Changed, m.shown(one.after))
		case one.before != nil && m.matches(one.before):
			out.Removed = append(out.Removed, one.before.key())
		}
	}
	return out
}

func (c change) key() Key {
	if c.after != nil {
		return c.after.key()
	}
	return c.before.key()
}
