package wire

import (
	"encoding/binary"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// A branch has its entries as columns: all children, then all their sums; all
// hashes, then all their versions.

func (w *writer) branch(b *engine.Branch) {
	switch {
	case b.Split && len(b.Items) != 0, !b.Split && len(b.Sums) != 0:
		w.fail(badField("split", "does not say which of sums and items is meant"))
		return
	case b.Split && b.Prefix.Len == 8 && len(b.Sums) != 0:
		w.fail(badField("prefix", "has no children: it is a whole hash"))
		return
	case !ascending(b.Sums):
		w.fail(badField("children", "are not ascending"))
		return
	case !w.count("hashes", len(b.Items), MaxListed):
		return
	}
	end := w.len()
	for i := range slices.Backward(b.Items) {
		w.rawPair(b.Items[i].Version.Hi, b.Items[i].Version.Lo)
	}
	w.closeFilled(branchVersions, end)

	end = w.len()
	for i := range slices.Backward(b.Items) {
		binary.LittleEndian.PutUint64(w.take(8), uint64(b.Items[i].Hash))
	}
	w.closeFilled(branchHashes, end)

	end = w.len()
	for i := range slices.Backward(b.Sums) {
		w.rawPair(b.Sums[i].Sum.Hi, b.Sums[i].Sum.Lo)
	}
	w.closeFilled(branchSums, end)

	end = w.len()
	for i := range slices.Backward(b.Sums) {
		w.take(1)[0] = b.Sums[i].Child
	}
	w.closeFilled(branchChildren, end)

	w.bool(branchSplit, b.Split)
	if b.Prefix.Len != 0 {
		w.prefix(branchPrefix, b.Prefix)
	}
}

func readBranch(b []byte, m *engine.Branch) *Error {
	var children, sums, versions []byte
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case branchPrefix:
			m.Prefix = r.prefix("prefix")
		case branchSplit:
			m.Split = r.bool()
		case branchChildren:
			children = r.data
		case branchSums:
			sums = r.data
		case branchHashes:
			n := r.packed("hashes", len(m.Items), MaxListed)
			m.Items = slices.Grow(m.Items, n)
			for i := range n {
				m.Items = append(m.Items, engine.Listed{Hash: engine.KeyHash(binary.LittleEndian.Uint64(r.data[8*i:]))})
			}
		case branchHashesPlain:
			if r.room("hashes", len(m.Items)+1, MaxListed) {
				m.Items = append(m.Items, engine.Listed{Hash: engine.KeyHash(r.num)})
			}
		case branchVersions:
			versions = r.data
		}
	}
	if r.err != nil {
		return r.err
	}
	switch {
	case m.Split && len(m.Items) != 0, !m.Split && len(children) != 0:
		return badField("split", "does not say which of sums and items is meant")
	case m.Split && m.Prefix.Len == 8 && len(children) != 0:
		return badField("prefix", "has no children: it is a whole hash")
	case len(children) > 256:
		return tooMany("children", 256)
	case len(sums) != 16*len(children):
		return badField("sums", "are not one of 16 bytes for each child")
	case len(versions) != 16*len(m.Items):
		return badField("versions", "are not one of 16 bytes for each hash")
	}
	if len(children) > 0 {
		m.Sums = make([]engine.ChildSum, len(children))
	}
	for i, child := range children {
		m.Sums[i].Child = child
		m.Sums[i].Sum.Hi, m.Sums[i].Sum.Lo = pairAt(sums, i)
	}
	for i := range m.Items {
		m.Items[i].Version.Hi, m.Items[i].Version.Lo = pairAt(versions, i)
	}
	if !ascending(m.Sums) {
		return badField("children", "are not ascending")
	}
	return nil
}

func ascending(sums []engine.ChildSum) bool {
	for i := 1; i < len(sums); i++ {
		if sums[i-1].Child >= sums[i].Child {
			return false
		}
	}
	return true
}
