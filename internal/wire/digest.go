package wire

import (
	"encoding/binary"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// roots writes a list of Roots or of Same.
func (w *writer) roots(t tag, field string, items []engine.Root) {
	if !w.count(field, len(items), MaxScopes) {
		return
	}
	for i := range slices.Backward(items) {
		end := w.len()
		w.uint(rootRevision, items[i].Revision)
		w.pair(rootSum, items[i].Sum.Hi, items[i].Sum.Lo)
		w.uint(rootCount, items[i].Count)
		w.string(rootScope, "scope", scopeName, items[i].Scope)
		w.close(t, end)
		if w.failedIn(field, i) {
			return
		}
	}
}

func readRoots(b []byte) (engine.Message, *Error) {
	var m engine.Roots
	err := readRootLists(b, &m.Items, &m.Same)
	return m, err
}

func readSame(b []byte) (engine.Message, *Error) {
	var m engine.Same
	err := readRootLists(b, &m.Items, nil)
	return m, err
}

// readRootLists reads the lists of Roots or, where there is no second, of Same.
func readRootLists(b []byte, items, same *[]engine.Root) *Error {
	r := reader{rest: b}
	list := func(t tag, field string, into *[]engine.Root) {
		if n := r.count(t, field, MaxScopes); n > 0 {
			*into = make([]engine.Root, 0, n)
		}
	}
	list(rootsItems, "items", items)
	if same != nil {
		list(rootsSame, "same", same)
	}
	for r.next() {
		switch {
		case r.tag == rootsItems:
			r.root("items", items)
		case r.tag == rootsSame && same != nil:
			r.root("same", same)
		}
	}
	return r.err
}

func (r *reader) root(field string, into *[]engine.Root) {
	*into = append(*into, engine.Root{})
	last := len(*into) - 1
	r.entry(field, last, readRoot(r.data, &(*into)[last]))
}

func readRoot(b []byte, m *engine.Root) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case rootScope:
			m.Scope = r.string("scope", scopeName)
		case rootCount:
			m.Count = r.num
		case rootSum:
			m.Sum.Hi, m.Sum.Lo = r.pair("sum")
		case rootRevision:
			m.Revision = r.num
		}
	}
	r.need("scope", m.Scope)
	return r.err
}

func (w *writer) ask(m engine.Ask) {
	if !w.count("prefixes", len(m.Prefixes), MaxPrefixes) {
		return
	}
	for i := range slices.Backward(m.Prefixes) {
		w.prefix(askPrefixes, m.Prefixes[i])
		if w.failedIn("prefixes", i) {
			return
		}
	}
	w.uint(askRound, m.Round)
	w.string(askScope, "scope", scopeName, m.Scope)
}

func readAsk(b []byte) (engine.Message, *Error) {
	var m engine.Ask
	r := reader{rest: b}
	if n := r.count(askPrefixes, "prefixes", MaxPrefixes); n > 0 {
		m.Prefixes = make([]engine.Prefix, 0, n)
	}
	for r.next() {
		switch r.tag {
		case askScope:
			m.Scope = r.string("scope", scopeName)
		case askRound:
			m.Round = r.num
		case askPrefixes:
			m.Prefixes = append(m.Prefixes, r.prefix("prefixes"))
		}
	}
	r.need("scope", m.Scope)
	return m, r.err
}

// prefix writes a prefix even if it is empty: that is the prefix of all hashes.
func (w *writer) prefix(t tag, p engine.Prefix) {
	if !p.Valid() {
		w.fail(badField("", "is no prefix: it has bits beyond its length"))
		return
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], p.Bits)
	w.entry(t, b[:p.Len])
}

func (r *reader) prefix(field string) engine.Prefix {
	var b [8]byte
	if len(r.data) > len(b) {
		r.fail(badField(field, "has a prefix of %d bytes, at most %d are allowed", len(r.data), len(b)))
		return engine.Prefix{}
	}
	copy(b[:], r.data)
	return engine.Prefix{Bits: binary.BigEndian.Uint64(b[:]), Len: uint8(len(r.data))}
}

func (w *writer) answer(m engine.Answer) {
	if !w.count("branches", len(m.Branches), MaxPrefixes) {
		return
	}
	w.uint(answerView, m.View)
	for i := range slices.Backward(m.Branches) {
		end := w.len()
		w.branch(&m.Branches[i])
		w.close(answerBranches, end)
		if w.failedIn("branches", i) {
			return
		}
	}
	w.uint(answerRound, m.Round)
	w.string(answerScope, "scope", scopeName, m.Scope)
}

func readAnswer(b []byte) (engine.Message, *Error) {
	var m engine.Answer
	r := reader{rest: b}
	if n := r.count(answerBranches, "branches", MaxPrefixes); n > 0 {
		m.Branches = make([]engine.Branch, 0, n)
	}
	for r.next() {
		switch r.tag {
		case answerScope:
			m.Scope = r.string("scope", scopeName)
		case answerRound:
			m.Round = r.num
		case answerView:
			m.View = r.num
		case answerBranches:
			m.Branches = append(m.Branches, engine.Branch{})
			last := len(m.Branches) - 1
			r.entry("branches", last, readBranch(r.data, &m.Branches[last]))
		}
	}
	r.need("scope", m.Scope)
	return m, r.err
}

func (w *writer) want(m engine.Want) {
	if !w.count("hashes", len(m.Hashes), MaxHashes) {
		return
	}
	end := w.len()
	for _, h := range slices.Backward(m.Hashes) {
		binary.LittleEndian.PutUint64(w.take(8), uint64(h))
	}
	w.closeFilled(wantHashes, end)
	w.string(wantScope, "scope", scopeName, m.Scope)
}

func readWant(b []byte) (engine.Message, *Error) {
	var m engine.Want
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case wantScope:
			m.Scope = r.string("scope", scopeName)
		case wantHashes:
			n := r.packed("hashes", len(m.Hashes), MaxHashes)
			m.Hashes = slices.Grow(m.Hashes, n)
			for i := range n {
				m.Hashes = append(m.Hashes, engine.KeyHash(binary.LittleEndian.Uint64(r.data[8*i:])))
			}
		case wantHashesPlain:
			if r.room("hashes", len(m.Hashes)+1, MaxHashes) {
				m.Hashes = append(m.Hashes, engine.KeyHash(r.num))
			}
		}
	}
	r.need("scope", m.Scope)
	return m, r.err
}

// packed returns how many 64-bit numbers the current field holds, beside those
// that came before.
func (r *reader) packed(field string, before, limit int) int {
	if len(r.data)%8 != 0 {
		r.fail(badField(field, "are no whole numbers"))
		return 0
	}
	n := len(r.data) / 8
	if !r.room(field, before+n, limit) {
		return 0
	}
	return n
}

func (r *reader) room(field string, n, limit int) bool {
	if n > limit {
		r.fail(tooMany(field, limit))
		return false
	}
	return true
}
