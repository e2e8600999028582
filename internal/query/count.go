package query

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Counts are the numbers of Applications that match a query.
type Counts struct {
	Total  int     `json:"total"`
	Groups []Group `json:"groups,omitempty"`
	More   int     `json:"more,omitempty"` // groups above the limit
}

// Group is the number of Applications with a value of a field. An Application with several values counts in several
// groups.
type Group struct {
	Value string `json:"value"` // empty if there is none
	Count int    `json:"count"`
}

// ages are the groups of an age field.
var ages = []struct {
	below time.Duration
	name  string
}{{time.Minute, "< 1m"}, {10 * time.Minute, "< 10m"}, {time.Hour, "< 1h"}, {24 * time.Hour, "< 1d"}, {7 * 24 * time.Hour, "< 7d"}}

const oldest = ">= 7d"

// Count counts the Applications that match a query. If by is not empty, it groups them by this field and returns at most
// limit groups, the largest first.
func (s Snapshot) Count(q Query, by string, limit int, scope Scope, clock Clock) (Counts, error) {
	m := newMatcher(q, scope, clock, s.texts)
	var out Counts
	if by == "" {
		for _, r := range s.rows {
			if m.matches(r) {
				out.Total++
			}
		}
		return out, nil
	}
	f, err := fieldOf(by)
	if err != nil {
		return out, err
	}
	groups := groups{counts: make([]int, s.texts), names: map[string]int{}}
	for _, r := range s.rows {
		if !m.matches(r) {
			continue
		}
		out.Total++
		groups.add(m, f, r)
	}
	for _, t := range groups.texts {
		groups.names[t.value] += groups.counts[t.id]
	}
	for name, n := range groups.names {
		out.Groups = append(out.Groups, Group{name, n})
	}
	slices.SortFunc(out.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Value, b.Value))
	})
	if limit = min(max(limit, 1), MaxPage); len(out.Groups) > limit {
		out.More = len(out.Groups) - limit
		out.Groups = out.Groups[:limit]
	}
	return out, nil
}

// groups counts texts and other names.
type groups struct {
	counts []int // by ID of the text
	texts  []*text
	names  map[string]int
}

func (g *groups) addText(t *text) {
	if g.counts[t.id] == 0 {
		g.texts = append(g.texts, t)
	}
	g.counts[t.id]++
}

// add adds a row to its groups.
func (g *groups) add(m *matcher, f field, r *row) {
	switch f.kind {
	case ageField:
		g.names[m.ageGroup(f, r)]++
	case labelField:
		if v := r.label(f.label); v != nil {
			g.addText(v)
		} else {
			g.names[""]++
		}
	case listField:
		values := r.list(f.index)
		for i, v := range values {
			if !slices.Contains(values[:i], v) {
				g.addText(v)
			}
		}
		if len(values) == 0 {
			g.names[""]++
		}
	default:
		g.addText(r.single[f.index])
	}
}

func (m *matcher) ageGroup(f field, r *row) string {
	at := m.timeOf(f, r)
	if at == 0 {
		return ""
	}
	age := m.clock.Now.Sub(time.Unix(at, 0))
	for _, group := range ages {
		if age < group.below {
			return group.name
		}
	}
	return oldest
}
