package query

import (
	"slices"
	"strings"
	"time"
)

// Scope is what a caller may see: Applications whose namespace, project and agent are all allowed. A function that is nil
// allows nothing, so that the zero Scope is empty.
type Scope struct {
	Namespace, Project func(string) bool
	Agent              func(string) bool // is not called for an Application without an agent
	// Only restricts the caller to one Application. If nil, it is not restricted.
	Only *Key
}

// Any allows everything.
func Any(string) bool { return true }

// Clock is what age fields are compared with.
type Clock struct {
	Now time.Time
	// InSync returns when hub and agent were last in sync. It is zero if that is not known.
	InSync func(agent string) time.Time
}

// matcher evaluates a query for the rows of one caller.
type matcher struct {
	scope   Scope
	clock   Clock
	texts   int // IDs of texts are below; if zero, they are not unique
	terms   []func(*row) bool
	visible []func(*row) bool
	inSync  func(*text) int64 // seconds
}

func newMatcher(q Query, scope Scope, clock Clock, texts int) *matcher {
	m := &matcher{scope: scope, clock: clock, texts: texts}
	m.inSync = remember(texts, func(agent string) int64 {
		if t := clock.InSync(agent); agent != "" && !t.IsZero() {
			return t.Unix()
		}
		return 0
	})
	for _, t := range q.terms {
		m.terms = append(m.terms, m.compile(t))
	}
	for index, allows := range map[int]func(string) bool{namespaceAt: scope.Namespace, projectAt: scope.Project, agentAt: scope.Agent} {
		allowed := remember(texts, func(value string) bool { return allows != nil && (index == agentAt && value == "" || allows(value)) })
		m.visible = append(m.visible, func(r *row) bool { return allowed(r.single[index]) })
	}
	return m
}

// remember returns a function that calls of at most once for each text. Most values occur in many rows.
func remember[T any](texts int, of func(string) T) func(*text) T {
	if texts == 0 {
		return func(t *text) T { return of(t.value) }
	}
	known, results := make([]bool, texts), make([]T, texts)
	return func(t *text) T {
		if !known[t.id] {
			known[t.id], results[t.id] = true, of(t.value)
		}
		return results[t.id]
	}
}

// matches reports whether a row is in the result and the caller may see it.
func (m *matcher) matches(r *row) bool {
	for _, term := range m.terms {
		if !term(r) {
			return false
		}
	}
	for _, allows := range m.visible {
		if !allows(r) {
			return false
		}
	}
	return m.scope.Only == nil || *m.scope.Only == r.key()
}

// timeOf returns the time that an age field is measured from, in seconds. It is 0 if that is not known.
func (m *matcher) timeOf(f field, r *row) int64 {
	if f.name == freshness {
		return m.inSync(r.single[agentAt])
	}
	return r.changed
}

func (m *matcher) compile(t term) func(*row) bool {
	negate := t.op == notEqual || t.op == notMatches
	var absent bool // a row without a value matches
	var alternatives []func(string) bool
	for _, value := range t.values {
		absent = absent || value == ""
		alternatives = append(alternatives, comparison(t, value))
	}
	matches := func(value string) bool {
		for _, alternative := range alternatives {
			if alternative(value) {
				return true
			}
		}
		return false
	}
	remembered := remember(m.texts, matches)
	some := func(values []*text) bool {
		return slices.ContainsFunc(values, remembered) || len(values) == 0 && absent
	}
	switch t.field.kind {
	case ageField:
		limit := m.clock.Now.Add(-t.age).Unix()
		return func(r *row) bool {
			at := m.timeOf(t.field, r)
			if t.op == longer {
				// An agent that was never in sync is not fresh. An Application without an agent has no freshness.
				return at < limit && (at != 0 || t.field.name == freshness && r.single[agentAt].value != "")
			}
			return at > limit
		}
	case labelField:
		return func(r *row) bool {
			if v := r.label(t.field.label); v != nil {
				return remembered(v) != negate
			}
			return absent != negate
		}
	case listField:
		return func(r *row) bool { return some(r.list(t.field.index)) != negate }
	case textField:
		return func(r *row) bool {
			return some(r.single[:]) || some(r.lists)
		}
	}
	return func(r *row) bool { return remembered(r.single[t.field.index]) != negate }
}

// label returns the value of a label. It is nil if there is none.
func (r *row) label(key string) *text {
	all := r.list(labelsAt)
	for i := 0; i < len(all); i += 2 {
		if all[i].value == key {
			return all[i+1]
		}
	}
	return nil
}

// comparison returns a function that compares values with one value of a term. Case does not matter.
func comparison(t term, want string) func(string) bool {
	lower := strings.ToLower(want)
	if t.op == matches || t.op == notMatches {
		parts := strings.Split(lower, "*")
		return func(value string) bool { return containsParts(strings.ToLower(value), parts) }
	}
	if t.field.name == "revision" && isShortHash(lower) {
		return func(value string) bool { return strings.HasPrefix(strings.ToLower(value), lower) }
	}
	return func(value string) bool { return strings.EqualFold(value, want) }
}

// containsParts reports whether a value contains all parts, in order and without overlap.
func containsParts(value string, parts []string) bool {
	for _, part := range parts {
		_, rest, found := strings.Cut(value, part)
		if !found {
			return false
		}
		value = rest
	}
	return true
}

// isShortHash reports whether a revision is an abbreviated commit hash.
func isShortHash(revision string) bool {
	return len(revision) >= minShortHash && strings.Trim(revision, "0123456789abcdef") == ""
}
