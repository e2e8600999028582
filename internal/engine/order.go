package engine

import (
	"maps"
	"slices"
)

// sortedHashes returns a map's keys in order, because results must not depend on map iteration.
func sortedHashes[V any](m map[KeyHash]V) []KeyHash { return slices.Sorted(maps.Keys(m)) }
