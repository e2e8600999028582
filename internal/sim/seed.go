package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Seed names a run: a number, and, once it was shrunk, the actions of its plan that are left. It is written 123 or
// 123:4,17,22.
type Seed struct {
	Number uint64
	Cut    bool
	Keep   []int
}

func (s Seed) String() string {
	out := strconv.FormatUint(s.Number, 10)
	if !s.Cut {
		return out
	}
	parts := make([]string, len(s.Keep))
	for i, k := range s.Keep {
		parts[i] = strconv.Itoa(k)
	}
	return out + ":" + strings.Join(parts, ",")
}

// ParseSeed reads what String writes.
func ParseSeed(text string) (Seed, error) {
	number, list, cut := strings.Cut(text, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return Seed{}, fmt.Errorf("parse seed %q: %w", text, err)
	}
	s := Seed{Number: n, Cut: cut}
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue
		}
		k, err := strconv.Atoi(part)
		if err != nil {
			return Seed{}, fmt.Errorf("parse seed %q: %w", text, err)
		}
		s.Keep = append(s.Keep, k)
	}
	return s, nil
}

// cut returns the part of a plan that the seed keeps.
func (s Seed) cut(plan []action) []action {
	if !s.Cut {
		return plan
	}
	var out []action
	for i, a := range plan {
		if slices.Contains(s.Keep, i) {
			out = append(out, a)
		}
	}
	return out
}

// Shrink leaves out actions as long as the seed still fails.
func Shrink(r Result) Result { return shrink(r, mutant{}) }

func shrink(r Result, m mutant) Result {
	best := r
	keep := r.Seed.Keep
	if !r.Seed.Cut {
		keep = nil
		for i := range r.Actions {
			keep = append(keep, i)
		}
	}
	for size := max(len(keep)/2, 1); ; size /= 2 {
		for from := 0; from < len(keep); {
			fewer := slices.Concat(keep[:from], keep[min(from+size, len(keep)):])
			if try := run(Seed{Number: r.Seed.Number, Cut: true, Keep: fewer}, m, nil); len(try.Violations) > 0 {
				keep, best = fewer, try
			} else {
				from += size
			}
		}
		if size <= 1 {
			return best
		}
	}
}

func (s shape) String() string {
	var out []string
	for _, a := range s.agents {
		line := fmt.Sprintf("%s %s in %s, argo in %s", a.mode, a.name, a.hubNamespace, a.argo)
		if len(a.settings.AllowedNamespaces) > 0 {
			line += " and " + strings.Join(a.settings.AllowedNamespaces, " ")
		}
		out = append(out, line)
	}
	what := []string{fmt.Sprintf("%d principals, mapping by %s; agents: %s", s.replicas, s.mapping, strings.Join(out, "; "))}
	for _, option := range []struct {
		on   bool
		name string
	}{
		{s.bus, fmt.Sprintf("message bus losing %d%%", s.loss)},
		{s.watchByNamespace, "watches by namespace"},
		{s.prunes, "spokes prune"},
		{s.defaults, "spokes default"},
		{s.policy.AdoptNever, "adoption never"},
		{s.policy.Recreate, "recreate"},
		{s.objectLimit > 0, "small objects only"},
		{s.tuning.DeletionBudgetItems > 0, fmt.Sprintf("held above %d", s.tuning.DeletionBudgetItems)},
	} {
		if option.on {
			what = append(what, option.name)
		}
	}
	return strings.Join(what, "; ")
}
