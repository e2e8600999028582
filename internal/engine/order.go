package engine

import (
	"cmp"
	"slices"
)

// sortedHashes returns a map's keys in one order: results must not depend on
// the order in which a map happens to be walked.
func sortedHashes[V any](m map[KeyHash]V) []KeyHash {
	keys := make([]KeyHash, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[KeyHash])
	return keys
}
