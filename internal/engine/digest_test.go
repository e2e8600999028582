package engine

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the obvious digest: a map, and everything computed again.
type model map[KeyHash]Version

func (m model) items(p Prefix) []Listed {
	var out []Listed
	for h, v := range m {
		if p.Covers(h) {
			out = append(out, Listed{h, v})
		}
	}
	slices.SortFunc(out, func(a, b Listed) int { return cmp.Compare(a.Hash, b.Hash) })
	return out
}

func (m model) sum(p Prefix) (s Sum) {
	for _, it := range m.items(p) {
		s = s.add(itemSum(it.Hash, it.Version))
	}
	return s
}

// genHash makes hashes that crowd in a few corners, so that buckets split deep.
func genHash(t *rapid.T) KeyHash {
	h := rapid.Uint64().Draw(t, "hash")
	depth := rapid.SampledFrom([]uint{0, 0, 1, 2, 3, 7}).Draw(t, "crowded")
	return KeyHash(h & (^uint64(0) >> (8 * depth)))
}

func genPrefix(t *rapid.T, m model) Prefix {
	length := rapid.Uint8Range(0, maxDepth).Draw(t, "length")
	bits := rapid.Uint64().Draw(t, "bits")
	if hashes := sortedHashes(m); len(hashes) > 0 && rapid.Bool().Draw(t, "near") {
		bits = uint64(rapid.SampledFrom(hashes).Draw(t, "where"))
	}
	return Prefix{bits & prefixMask(length), length}
}

func TestDigest_EqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Digest
		m := model{}
		steps := rapid.IntRange(1, 40).Draw(t, "steps")
		for range steps {
			switch rapid.SampledFrom([]string{"insert", "insert", "change", "delete"}).Draw(t, "step") {
			case "insert":
				for range rapid.IntRange(1, 80).Draw(t, "many") {
					h, v := genHash(t), Version{rapid.Uint64Range(0, 3).Draw(t, "version"), 1}
					d.Set(h, v)
					m[h] = v
				}
			case "change":
				if hashes := sortedHashes(m); len(hashes) > 0 {
					h := rapid.SampledFrom(hashes).Draw(t, "which")
					m[h] = Version{7, uint64(h)}
					d.Set(h, m[h])
				}
			case "delete":
				hashes := sortedHashes(m)
				n := rapid.IntRange(0, len(hashes)).Draw(t, "how many")
				for _, h := range hashes[:n] {
					d.Delete(h)
					delete(m, h)
				}
				d.Delete(genHash(t) | 1<<63) // most likely not there
				if h := sortedHashes(m); len(h) != d.Len() {
					m = model{}
					for _, it := range d.Items(Prefix{}) {
						m[it.Hash] = it.Version
					}
				}
			}
			compareDigest(t, &d, m)
		}
	})
}

// sumAt returns the sum of the items below a prefix.
func (d *Digest) sumAt(p Prefix) Sum {
	b, covered := d.at(p)
	if b != nil && covered {
		return b.sum
	}
	var s Sum
	for _, it := range d.Items(p) {
		s = s.add(itemSum(it.Hash, it.Version))
	}
	return s
}

func compareDigest(t *rapid.T, d *Digest, m model) {
	if d.Len() != len(m) || d.Sum() != m.sum(Prefix{}) {
		t.Fatalf("%d items, model has %d; sums agree: %v", d.Len(), len(m), d.Sum() == m.sum(Prefix{}))
	}
	for range 4 {
		p := genPrefix(t, m)
		want := m.items(p)
		if got := d.Items(p); !slices.Equal(got, want) {
			t.Fatalf("items below %+v: %v, want %v", p, got, want)
		}
		if d.sumAt(p) != m.sum(p) {
			t.Fatalf("sum below %+v is wrong", p)
		}
		checkBranch(t, d.Branch(p), p, m, want)
		if p.Len < maxDepth {
			sums := d.childSums(p)
			for i := range sums {
				if sums[i] != m.sum(p.Child(uint8(i))) {
					t.Fatalf("sum of child %d below %+v is wrong", i, p)
				}
			}
		}
	}
	for h, v := range m {
		if got, ok := d.Get(h); !ok || got != v {
			t.Fatalf("Get(%x) = %v, %v", h, got, ok)
		}
		break
	}
}

// checkBranch holds an answer against the model: whichever form it has, it describes exactly what is below the prefix.
func checkBranch(t *rapid.T, b Branch, p Prefix, m model, want []Listed) {
	if b.Prefix != p {
		t.Fatalf("branch is about %+v, not %+v", b.Prefix, p)
	}
	if !b.Split {
		if !slices.Equal(b.Items, want) || len(b.Sums) > 0 {
			t.Fatalf("branch below %+v lists %v, want %v", p, b.Items, want)
		}
		if len(b.Items) > splitAbove {
			t.Fatalf("branch below %+v lists %d items", p, len(b.Items))
		}
		return
	}
	var total Sum
	for i, s := range b.Sums {
		if i > 0 && b.Sums[i-1].Child >= s.Child {
			t.Fatalf("children are not in order")
		}
		if s.Sum != m.sum(p.Child(s.Child)) {
			t.Fatalf("child %d of %+v has a wrong sum", s.Child, p)
		}
		total = total.add(s.Sum)
	}
	if total != m.sum(p) {
		t.Fatalf("the children of %+v do not make up the whole", p)
	}
}

// Two digests over the same items have the same sums, whatever their histories and shapes.
func TestDigest_DoesNotDependOnHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b Digest
		hashes := rapid.SliceOfNDistinct(rapid.Custom(genHash), 1, 150, rapid.ID[KeyHash]).Draw(t, "hashes")
		extra := rapid.SliceOfNDistinct(rapid.Uint64Range(1<<62, 1<<63), 0, 150, rapid.ID[uint64]).Draw(t, "extra")
		for _, h := range hashes {
			a.Set(h, Version{1, uint64(h)})
		}
		for _, h := range extra {
			b.Set(KeyHash(h), Version{2, 2})
		}
		for _, h := range slices.Backward(hashes) {
			b.Set(h, Version{3, 3})
			b.Set(h, Version{1, uint64(h)})
		}
		for _, h := range extra {
			if !slices.Contains(hashes, KeyHash(h)) {
				b.Delete(KeyHash(h))
			}
		}
		if a.Len() != b.Len() || a.Sum() != b.Sum() {
			t.Fatalf("%d and %d items, sums agree: %v", a.Len(), b.Len(), a.Sum() == b.Sum())
		}
		for range 5 {
			p := genPrefix(t, nil)
			if a.sumAt(p) != b.sumAt(p) {
				t.Fatalf("sums below %+v differ", p)
			}
		}
		checkDigest(t, &a)
		checkDigest(t, &b)
	})
}

func TestPrefix(t *testing.T) {
	for _, p := range []Prefix{{Len: 9}, {Bits: 1, Len: 7}, {Bits: 1}, {Len: 255}} {
		if p.Valid() {
			t.Errorf("%+v is valid", p)
		}
	}
	p := Prefix{}
	for i := range uint8(8) {
		p = p.Child(0xa0 + i)
		if !p.Valid() || p.Len != i+1 {
			t.Errorf("child %d: %+v", i, p)
		}
	}
	if p.Bits != 0xa0a1a2a3a4a5a6a7 || !p.Covers(0xa0a1a2a3a4a5a6a7) || p.Covers(0xa0a1a2a3a4a5a6a8) {
		t.Errorf("%+v", p)
	}
}

// Sums are numbers mod 2^128: adding and taking away cancel out.
func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Sum{rapid.Uint64().Draw(t, "a.Hi"), rapid.Uint64().Draw(t, "a.Lo")}
		b := Sum{rapid.Uint64().Draw(t, "b.Hi"), rapid.Uint64().Draw(t, "b.Lo")}
		if a.add(b).sub(b) != a || a.add(b) != b.add(a) {
			t.Fatal("not a group")
		}
	})
}
