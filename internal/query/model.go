package query

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// Key names an Application.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Model holds one row for each Application. It is not safe for concurrent use. Its Snapshots are.
type Model struct {
	instance string
	rows     []*row // in no order
	at       map[Key]int
	texts    map[string]*text
	free     []int    // IDs of texts that were dropped
	changes  []change // a ring of the last changes
	sequence uint64   // number of changes
}

// text is a string that rows share. Among the texts of one Snapshot, id is unique and small.
type text struct {
	value string
	id    int
	uses  int // by rows of the model; owned by the model
}

// row is an Application. It never changes, except for the uses of its texts.
type row struct {
	single    [singles]*text
	lists     []*text
	ends      [lists]uint16 // of each list in lists
	changed   int64         // seconds
	truncated bool
}

// change is one step in the life of a row. Both are nil in no change.
type change struct{ before, after *row }

// MaxChanges is the number of changes that a Model remembers for watches.
const MaxChanges = 10_000

// NewModel returns an empty Model. instance is different for every Model, because changes are counted per Model.
func NewModel(instance string) *Model {
	return &Model{instance: instance, at: map[Key]int{}, texts: map[string]*text{}}
}

// Len returns the number of rows.
func (m *Model) Len() int { return len(m.rows) }

// Set adds or replaces a row. It reports whether something changed.
func (m *Model) Set(a Application) bool {
	key := Key{a.Namespace, a.Name}
	i, known := m.at[key]
	if !known {
		r := m.newRow(a)
		m.at[key] = len(m.rows)
		m.rows = append(m.rows, r)
		m.record(change{nil, r})
		return true
	}
	before, r := m.rows[i], m.newRow(a)
	if before.equal(r) {
		m.release(r)
		return false
	}
	m.release(before)
	m.rows[i] = r
	m.record(change{before, r})
	return true
}

// SetAgent changes the agent of a row, if there is one.
func (m *Model) SetAgent(key Key, agent string) {
	i, known := m.at[key]
	if !known || m.rows[i].single[agentAt].value == agent {
		return
	}
	before := m.rows[i]
	after := *before
	after.single[agentAt] = m.intern(agent)
	m.drop(before.single[agentAt])
	m.rows[i] = &after
	m.record(change{before, &after})
}

// Delete removes a row.
func (m *Model) Delete(key Key) {
	i, known := m.at[key]
	if !known {
		return
	}
	r, last := m.rows[i], len(m.rows)-1
	m.rows[i] = m.rows[last]
	m.at[m.rows[i].key()] = i
	m.rows[last] = nil
	m.rows = m.rows[:last]
	delete(m.at, key)
	m.release(r)
	m.record(change{r, nil})
}

// Keep removes all rows of a namespace that are not in keys. If namespace is empty, of all namespaces.
func (m *Model) Keep(namespace string, present func(Key) bool) {
	for _, key := range slices.Collect(maps.Keys(m.at)) {
		if (namespace == "" || key.Namespace == namespace) && !present(key) {
			m.Delete(key)
		}
	}
}

func (m *Model) record(c change) {
	if len(m.changes) < MaxChanges {
		m.changes = append(m.changes, c)
	} else {
		m.changes[m.sequence%MaxChanges] = c
	}
	m.sequence++
}

func (m *Model) intern(value string) *text {
	t := m.texts[value]
	if t == nil {
		t = &text{value: strings.Clone(value), id: len(m.texts)} // value may be part of an object
		if last := len(m.free) - 1; last >= 0 {
			t.id, m.free = m.free[last], m.free[:last]
		}
		m.texts[t.value] = t
	}
	t.uses++
	return t
}

func (m *Model) drop(t *text) {
	if t.uses--; t.uses == 0 {
		delete(m.texts, t.value)
		m.free = append(m.free, t.id)
	}
}

func (m *Model) release(r *row) {
	for _, t := range r.single {
		m.drop(t)
	}
	for _, t := range r.lists {
		m.drop(t)
	}
}

func (m *Model) newRow(a Application) *row {
	r := &row{truncated: a.Truncated}
	if !a.Changed.IsZero() {
		r.changed = a.Changed.Unix()
	}
	for i, value := range [singles]string{namespaceAt: a.Namespace, nameAt: a.Name, agentAt: a.Agent, projectAt: a.Project, healthAt: a.Health, syncAt: a.Sync, operationAt: a.Operation} {
		r.single[i] = m.intern(value)
	}
	size := 2 * len(a.Labels)
	all := [labelsAt][]string{revisionsAt: a.Revisions, imagesAt: a.Images, chartsAt: a.Charts, repositoriesAt: a.Repositories, conditionsAt: a.Conditions}
	for _, list := range all {
		size += len(list)
	}
	if size > 0 {
		r.lists = make([]*text, 0, size)
	}
	for i, list := range all {
		for _, value := range list {
			r.lists = append(r.lists, m.intern(value))
		}
		r.ends[i] = uint16(len(r.lists)) // ReadApplication limits the lists
	}
	for _, label := range slices.Sorted(maps.Keys(a.Labels)) {
		r.lists = append(r.lists, m.intern(label), m.intern(a.Labels[label]))
	}
	r.ends[labelsAt] = uint16(len(r.lists))
	return r
}

func (r *row) key() Key { return Key{r.single[namespaceAt].value, r.single[nameAt].value} }

// list returns the values of a list.
func (r *row) list(index int) []*text {
	start := uint16(0)
	if index > 0 {
		start = r.ends[index-1]
	}
	return r.lists[start:r.ends[index]]
}

// equal compares two rows of one model, which share their texts.
func (r *row) equal(o *row) bool {
	return r.single == o.single && r.ends == o.ends && slices.Equal(r.lists, o.lists) && r.changed == o.changed && r.truncated == o.truncated
}

func (r *row) application() Application {
	values := func(index int) (out []string) {
		for _, t := range r.list(index) {
			out = append(out, t.value)
		}
		return out
	}
	s := &r.single
	a := Application{Namespace: s[namespaceAt].value, Name: s[nameAt].value, Agent: s[agentAt].value, Project: s[projectAt].value, Health: s[healthAt].value,
		Sync: s[syncAt].value, Operation: s[operationAt].value, Revisions: values(revisionsAt), Images: values(imagesAt), Charts: values(chartsAt),
		Repositories: values(repositoriesAt), Conditions: values(conditionsAt), Truncated: r.truncated}
	if r.changed != 0 {
		a.Changed = time.Unix(r.changed, 0).UTC()
	}
	labels := r.list(labelsAt)
	for i := 0; i < len(labels); i += 2 {
		if a.Labels == nil {
			a.Labels = map[string]string{}
		}
		a.Labels[labels[i].value] = labels[i+1].value
	}
	return a
}

// Snapshot is the content of a Model at one time.
type Snapshot struct {
	rows     []*row
	texts    int // their IDs are below
	instance string
	sequence uint64
}

// Snapshot returns the current content.
func (m *Model) Snapshot() Snapshot {
	return Snapshot{rows: slices.Clone(m.rows), texts: len(m.texts) + len(m.free), instance: m.instance, sequence: m.sequence}
}

// Namespaces returns the namespaces of all rows.
func (s Snapshot) Namespaces() (namespaces []string) {
	seen := make([]bool, s.texts)
	for _, r := range s.rows {
		if t := r.single[namespaceAt]; !seen[t.id] {
			seen[t.id] = true
			namespaces = append(namespaces, t.value)
		}
	}
	return namespaces
}

// ErrStartAgain reports that the changes since a token are no longer known.
var ErrStartAgain = errors.New("the changes since this watch token are no longer known: start again with a new search")

// Changes are the changes of a Model since a token.
type Changes struct {
	changes  []change
	instance string
	sequence uint64
}

// Since returns the changes since a watch token. It returns ErrStartAgain if the Model does not know them.
func (m *Model) Since(token string) (Changes, error) {
	var t watchToken
	if err := decodeToken(token, "watch", &t); err != nil {
		return Changes{}, err
	}
	if t.Instance != m.instance || t.Sequence > m.sequence || m.sequence-t.Sequence > uint64(len(m.changes)) {
		return Changes{}, ErrStartAgain
	}
	out := Changes{instance: m.instance, sequence: m.sequence}
	for n := t.Sequence; n < m.sequence; n++ {
		out.changes = append(out.changes, m.changes[n%MaxChanges])
	}
	return out, nil
}

// AgentsIn returns the agents of all rows in namespaces that are allowed.
func (s Snapshot) AgentsIn(allows func(namespace string) bool) (agents []string) {
	allowed, seen := remember(s.texts, allows), make([]bool, s.texts)
	for _, r := range s.rows {
		if t := r.single[agentAt]; t.value != "" && !seen[t.id] && allowed(r.single[namespaceAt]) {
			seen[t.id] = true
			agents = append(agents, t.value)
		}
	}
	return agents
}
