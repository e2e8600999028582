package query

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxPage is the maximum number of Applications in a page, and of groups.
const MaxPage = 1000

// Request is one page of a query.
type Request struct {
	Query Query
	Sort  string // a field, descending with the prefix "-"; if empty, namespace and name
	Limit int    // 1 to MaxPage
	Token string // of the previous page; if empty, the first page
}

// Page is the response to a Request.
type Page struct {
	Items []Application `json:"items"`
	Total int           `json:"total"`          // of all pages
	Next  string        `json:"next,omitempty"` // token of the next page; empty if this is the last
	Watch string        `json:"watch"`          // token to watch changes after this page
}

// order sorts rows.
type order struct {
	m          *matcher
	field      field
	descending bool
}

func (m *matcher) order(by string) (order, error) {
	name, descending := strings.CutPrefix(by, "-")
	if name == "" {
		name = "namespace"
	}
	f, err := fieldOf(name)
	if err == nil && f.kind == listField {
		err = fmt.Errorf("cannot sort by %s, of which an Application may have several", name)
	}
	return order{m, f, descending}, err
}

// position is where a row is in an order.
type position struct {
	text string
	at   int64 // of an age field, negative: a longer time comes later
	key  Key
}

func (o order) position(r *row) position {
	p := position{key: r.key()}
	switch o.field.kind {
	case ageField:
		p.at = -o.m.timeOf(o.field, r)
	case labelField:
		if v := r.label(o.field.label); v != nil {
			p.text = v.value
		}
	default:
		p.text = r.single[o.field.index].value
	}
	return p
}

func (o order) compare(a, b position) int {
	c := cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text))
	if o.descending {
		c = -c
	}
	return cmp.Or(c, strings.Compare(a.key.Namespace, b.key.Namespace), strings.Compare(a.key.Name, b.key.Name))
}

// first keeps the first rows of an order. It is a heap with the last of them on top.
type first struct {
	order order
	rows  []placed
}

type placed struct {
	row *row
	position
}

func (f *first) Len() int { return len(f.rows) }
func (f *first) Less(i, j int) bool {
	return f.order.compare(f.rows[i].position, f.rows[j].position) > 0
}
func (f *first) Swap(i, j int) { f.rows[i], f.rows[j] = f.rows[j], f.rows[i] }
func (f *first) Push(any)      {}
func (f *first) Pop() any      { return nil }

func (f *first) add(p placed, limit int) {
	if len(f.rows) < limit {
		f.rows = append(f.rows, p)
		if len(f.rows) == limit {
			heap.Init(f)
		}
	} else if f.order.compare(p.position, f.rows[0].position) < 0 {
		f.rows[0] = p
		heap.Fix(f, 0)
	}
}

// List returns a page of the Applications that match a query.
func (s Snapshot) List(request Request, scope Scope, clock Clock) (Page, error) {
	m := newMatcher(request.Query, scope, clock, s.texts)
	o, err := m.order(request.Sort)
	if err != nil {
		return Page{}, err
	}
	hash := hashOf(request.Query.text, request.Sort)
	var after *position
	if request.Token != "" {
		if after, err = decodePageToken(request.Token, hash); err != nil {
			return Page{}, err
		}
	}
	page := Page{Items: []Application{}, Watch: encodeToken(watchToken{Version: tokenVersion, Kind: "watch", Instance: s.instance, Sequence: s.sequence})}
	limit := min(max(request.Limit, 1), MaxPage)
	kept := first{order: o}
	rest := 0
	for _, r := range s.rows {
		if !m.matches(r) {
			continue
		}
		page.Total++
		p := placed{r, o.position(r)}
		if after != nil && o.compare(p.position, *after) <= 0 {
			continue
		}
		rest++
		kept.add(p, limit)
	}
	slices.SortFunc(kept.rows, func(a, b placed) int { return o.compare(a.position, b.position) })
	for _, p := range kept.rows {
		page.Items = append(page.Items, m.shown(p.row))
	}
	if rest > len(kept.rows) {
		last := kept.rows[len(kept.rows)-1].position
		page.Next = encodeToken(pageToken{Version: tokenVersion, Kind: "page", Query: hash, Text: last.text, At: last.at, Namespace: last.key.Namespace, Name: last.key.Name})
	}
	return page, nil
}

// shown returns an Application with the freshness of its agent.
func (m *matcher) shown(r *row) Application {
	a := r.application()
	if at := m.inSync(r.single[agentAt]); at != 0 {
		a.InSync = time.Unix(at, 0).UTC()
	}
	return a
}

func hashOf(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// errOtherQuery reports a page token that another query returned.
var errOtherQuery = errors.New("the page token belongs to another query or sort order: start at the first page")
