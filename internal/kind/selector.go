package kind

import (
	"fmt"
	"slices"
	"strings"
)

// LabelSelector is a Kubernetes label selector: requirements separated by commas, all of which must hold.
//
//	team=web, tier!=test, env in (prod, stage), region notin (us), managed, !legacy
type LabelSelector []requirement

type requirement struct {
	key    string
	not    bool     // the requirement is negated
	values []string // nil if the label only has to exist
}

// Matches implements Selector. As in Kubernetes, a missing label satisfies != and notin.
func (s LabelSelector) Matches(labels map[string]string) bool {
	for _, r := range s {
		value, ok := labels[r.key]
		if r.values != nil {
			ok = ok && slices.Contains(r.values, value)
		}
		if ok == r.not {
			return false
		}
	}
	return true
}

// ParseSelector parses a selector. An empty one matches everything.
func ParseSelector(s string) (LabelSelector, error) {
	var selector LabelSelector
	for _, part := range splitSelector(s) {
		part = strings.TrimSpace(part)
		if part == "" {
			if strings.TrimSpace(s) == "" {
				return nil, nil
			}
			return nil, fmt.Errorf("label selector %q: an empty requirement", s)
		}
		r, err := parseRequirement(part)
		if err != nil {
			return nil, fmt.Errorf("label selector %q: %w", s, err)
		}
		selector = append(selector, r)
	}
	return selector, nil
}

// splitSelector splits at commas that are not within parentheses.
func splitSelector(s string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth <= 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

func parseRequirement(s string) (requirement, error) {
	if key, list, ok := strings.Cut(s, "("); ok {
		return parseSet(key, list)
	}
	var r requirement
	for _, operator := range []string{"!=", "==", "="} {
		key, value, ok := strings.Cut(s, operator)
		if !ok {
			continue
		}
		r = requirement{strings.TrimSpace(key), operator == "!=", []string{strings.TrimSpace(value)}}
		if !isLabelValue(r.values[0]) {
			return r, fmt.Errorf("%q is not a label value", r.values[0])
		}
		return r, checkLabelKey(r.key)
	}
	key, not := strings.CutPrefix(s, "!")
	r = requirement{key: strings.TrimSpace(key), not: not}
	return r, checkLabelKey(r.key)
}

// parseSet parses `key in (a, b)` and `key notin (a, b)`, split at the opening parenthesis.
func parseSet(head, list string) (requirement, error) {
	fields := strings.Fields(head)
	list, closed := strings.CutSuffix(strings.TrimSpace(list), ")")
	if len(fields) != 2 || fields[1] != "in" && fields[1] != "notin" || !closed {
		return requirement{}, fmt.Errorf("%q is not a requirement", head+"("+list)
	}
	r := requirement{key: fields[0], not: fields[1] == "notin", values: []string{}}
	for value := range strings.SplitSeq(list, ",") {
		value = strings.TrimSpace(value)
		if !isLabelValue(value) {
			return r, fmt.Errorf("%q is not a label value", value)
		}
		r.values = append(r.values, value)
	}
	return r, checkLabelKey(r.key)
}

func checkLabelKey(key string) error {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		if !isSubdomain(prefix) {
			return fmt.Errorf("%q is not a label", key)
		}
		name = rest
	}
	if name == "" || !isLabelValue(name) {
		return fmt.Errorf("%q is not a label", key)
	}
	return nil
}

func isLabelValue(s string) bool {
	if s == "" {
		return true
	}
	alphanumeric := func(c byte) bool { return c >= 'A' && c <= 'Z' || lowerAlphanumeric(rune(c)) }
	if len(s) > maxLabel || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return true
}
