package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Key names one item within a scope. Both sides use the same key and map it to the name of their own object. Namespace
// is empty where the scope implies it.
type Key struct {
	Namespace string
	Name      string
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyHash is the short form of a key in listings. It also determines the digest bucket of an item.
type KeyHash uint64

// Hash returns the short form of k.
func (k Key) Hash() KeyHash {
	var buf [256]byte
	b := append(buf[:0], k.Namespace...)
	b = append(b, 0)
	b = append(b, k.Name...)
	sum := sha256.Sum256(b)
	return KeyHash(binary.BigEndian.Uint64(sum[:8]))
}

// Version is the 128-bit hash of an item's content. It depends only on the content, so every process computes the same
// version for the same object.
type Version struct{ Hi, Lo uint64 }

// VersionOf returns the version of canonical content.
func VersionOf(content []byte) Version {
	sum := sha256.Sum256(content)
	return Version{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}

// IsZero reports whether no version is known.
func (v Version) IsZero() bool { return v == Version{} }

func (v Version) String() string {
	b := v.Bytes()
	return hex.EncodeToString(b[:])
}

// Bytes returns the version in big-endian order, as on the wire.
func (v Version) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], v.Hi)
	binary.BigEndian.PutUint64(b[8:], v.Lo)
	return b
}

// VersionFromBytes is the inverse of Bytes.
func VersionFromBytes(b []byte) (Version, error) {
	if len(b) != 16 {
		return Version{}, fmt.Errorf("version has %d bytes, want 16", len(b))
	}
	return Version{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, nil
}

// ParseVersion parses what String returns.
func ParseVersion(s string) (Version, error) {
	b, err := hex.DecodeString(s)
	if err != nil {
		return Version{}, fmt.Errorf("parse version %q: %w", s, err)
	}
	return VersionFromBytes(b)
}

// Sum is an element of the group in which digests are added: integers mod 2^128.
type Sum struct{ Hi, Lo uint64 }

func (s Sum) add(o Sum) Sum {
	lo, carry := bits.Add64(s.Lo, o.Lo, 0)
	hi, _ := bits.Add64(s.Hi, o.Hi, carry)
	return Sum{hi, lo}
}

func (s Sum) sub(o Sum) Sum {
	lo, borrow := bits.Sub64(s.Lo, o.Lo, 0)
	hi, _ := bits.Sub64(s.Hi, o.Hi, borrow)
	return Sum{hi, lo}
}

// itemSum returns what one item adds to the digest: a hash of key and version, so that swapped versions are noticed.
func itemSum(h KeyHash, v Version) Sum {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:8], uint64(h))
	binary.BigEndian.PutUint64(b[8:16], v.Hi)
	binary.BigEndian.PutUint64(b[16:], v.Lo)
	sum := sha256.Sum256(b[:])
	return Sum{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}
