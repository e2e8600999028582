package engine

import (
	"cmp"
	"slices"
)

// A bucket splits into 256 above splitAbove items and is folded below foldBelow. The gap keeps a set of nearly constant
// size from splitting and folding repeatedly.
const (
	splitAbove = 64
	foldBelow  = 32
	maxDepth   = 8 // bytes of a KeyHash
)

// Prefix is the beginning of a key hash: Len bytes, left-aligned in Bits.
type Prefix struct {
	Bits uint64
	Len  uint8
}

// Valid reports whether no bits are set beyond the prefix length.
func (p Prefix) Valid() bool {
	return p.Len <= maxDepth && p.Bits&^prefixMask(p.Len) == 0
}

// Covers reports whether h begins with the prefix.
func (p Prefix) Covers(h KeyHash) bool { return uint64(h)&prefixMask(p.Len) == p.Bits }

// Child returns the prefix extended by one byte.
func (p Prefix) Child(b uint8) Prefix {
	return Prefix{p.Bits | uint64(b)<<(56-8*p.Len), p.Len + 1}
}

func prefixMask(length uint8) uint64 {
	if length == 0 {
		return 0
	}
	return ^uint64(0) << (64 - 8*uint(length))
}

// Digest summarizes a set of (key, version) pairs, so that two sides find what differs at a cost that grows with the
// difference. It is a tree over the bytes of the key hash. Every node has the sum of the items below it, so a change
// updates one node per level. Trees of different shape over the same items have the same sums.
type Digest struct{ root bucket }

type bucket struct {
	sum   Sum
	count int
	items []Listed // of a leaf, unordered
	kids  *[256]*bucket
}

// Len returns the number of items.
func (d *Digest) Len() int { return d.root.count }

// Sum returns the digest of the whole set.
func (d *Digest) Sum() Sum { return d.root.sum }

// Set adds an item or changes its version.
func (d *Digest) Set(h KeyHash, v Version) {
	var path [maxDepth + 1]*bucket // from the root to the leaf
	n := 0
	for b := &d.root; b != nil && n < len(path); n++ {
		path[n] = b
		if b.kids == nil {
			break
		}
		b = b.kids[hashByte(h, uint8(n))]
	}
	leaf := path[min(n, maxDepth)]
	if leaf != nil {
		if i := leaf.find(h); i >= 0 {
			if old := leaf.items[i].Version; old != v {
				leaf.items[i].Version = v
				diff := itemSum(h, v).sub(itemSum(h, old))
				for _, b := range path[:n+1] {
					b.sum = b.sum.add(diff)
				}
			}
			return
		}
	}
	d.root.insert(Listed{h, v}, 0, itemSum(h, v))
}

// Delete removes an item.
func (d *Digest) Delete(h KeyHash) {
	if v, ok := d.Get(h); ok {
		d.root.remove(h, 0, itemSum(h, v))
	}
}

// Get returns the version of an item.
func (d *Digest) Get(h KeyHash) (Version, bool) {
	b := &d.root
	for depth := uint8(0); b != nil; depth++ {
		if b.kids == nil {
			if i := b.find(h); i >= 0 {
				return b.items[i].Version, true
			}
			return Version{}, false
		}
		b = b.kids[hashByte(h, depth)]
	}
	return Version{}, false
}

// Branch describes what is below a prefix: few items are listed, many are summed by their next byte.
func (d *Digest) Branch(p Prefix) Branch {
	out := Branch{Prefix: p}
	b, covered := d.at(p)
	if b == nil {
		return out
	}
	if covered && b.kids != nil {
		out.Split = true
		for i, kid := range b.kids {
			if kid != nil {
				out.Sums = append(out.Sums, ChildSum{uint8(i), kid.sum})
			}
		}
		return out
	}
	out.Items = d.Items(p)
	return out
}

// Items returns what is below a prefix, ordered by hash.
func (d *Digest) Items(p Prefix) []Listed {
	b, _ := d.at(p)
	if b == nil {
		return nil
	}
	items := b.collect(nil, p)
	slices.SortFunc(items, func(a, b Listed) int { return cmp.Compare(a.Hash, b.Hash) })
	return items
}

// at returns the bucket for p. If covered is false, it is a leaf higher up that also has items outside p.
func (d *Digest) at(p Prefix) (b *bucket, covered bool) {
	b = &d.root
	for depth := range p.Len {
		if b.kids == nil {
			return b, false
		}
		b = b.kids[uint8(p.Bits>>(56-8*depth))]
		if b == nil {
			return nil, false
		}
	}
	return b, true
}

func (b *bucket) insert(it Listed, depth uint8, s Sum) {
	b.sum = b.sum.add(s)
	b.count++
	if b.kids != nil {
		b.kid(it.Hash, depth).insert(it, depth+1, s)
		return
	}
	b.items = append(b.items, it)
	if len(b.items) > splitAbove && depth < maxDepth {
		items := b.items
		b.items, b.kids = nil, new([256]*bucket)
		for _, it := range items {
			b.kid(it.Hash, depth).insert(it, depth+1, itemSum(it.Hash, it.Version))
		}
	}
}

func (b *bucket) remove(h KeyHash, depth uint8, s Sum) {
	b.sum = b.sum.sub(s)
	b.count--
	if b.kids == nil {
		last := len(b.items) - 1
		b.items[b.find(h)] = b.items[last]
		b.items = b.items[:last]
		return
	}
	i := hashByte(h, depth)
	b.kids[i].remove(h, depth+1, s)
	if b.kids[i].count == 0 {
		b.kids[i] = nil
	}
	if b.count < foldBelow {
		b.items, b.kids = b.collect(make([]Listed, 0, b.count), Prefix{}), nil
	}
}

func (b *bucket) kid(h KeyHash, depth uint8) *bucket {
	i := hashByte(h, depth)
	if b.kids[i] == nil {
		b.kids[i] = new(bucket)
	}
	return b.kids[i]
}

func (b *bucket) find(h KeyHash) int {
	for i := range b.items {
		if b.items[i].Hash == h {
			return i
		}
	}
	return -1
}

func (b *bucket) collect(into []Listed, p Prefix) []Listed {
	if b.kids == nil {
		for _, it := range b.items {
			if p.Covers(it.Hash) {
				into = append(into, it)
			}
		}
		return into
	}
	for _, kid := range b.kids {
		if kid != nil {
			into = kid.collect(into, p)
		}
	}
	return into
}

func hashByte(h KeyHash, depth uint8) uint8 { return uint8(uint64(h) >> (56 - 8*depth)) }

// childSums returns the sums of the 256 children of a prefix.
func (d *Digest) childSums(p Prefix) (sums [256]Sum) {
	b, covered := d.at(p)
	switch {
	case b == nil:
	case covered && b.kids != nil:
		for i, kid := range b.kids {
			if kid != nil {
				sums[i] = kid.sum
			}
		}
	default:
		for _, it := range b.items {
			if p.Covers(it.Hash) {
				i := hashByte(it.Hash, p.Len)
				sums[i] = sums[i].add(itemSum(it.Hash, it.Version))
			}
		}
	}
	return sums
}
