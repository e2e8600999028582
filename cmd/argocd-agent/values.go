package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// value is a pflag.Value for any type.
type value[T any] struct {
	target *T
	kind   string // placeholder in the help, such as FILE; empty for a boolean
	parse  func(string) (T, error)
	format func(T) string
}

func (v *value[T]) Set(s string) error {
	parsed, err := v.parse(s)
	if err == nil {
		*v.target = parsed
	}
	return err
}

func (v *value[T]) String() string {
	if v.target == nil {
		return ""
	}
	return v.format(*v.target)
}

func (v *value[T]) Type() string { return v.kind }

func text(p *string, kind, initial string) pflag.Value {
	*p = initial
	same := func(s string) (string, error) { return s, nil }
	return &value[string]{p, kind, same, func(s string) string { return s }}
}

func boolean(p *bool, initial bool) pflag.Value {
	*p = initial
	parse := func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, errors.New("must be true or false")
		}
		return b, nil
	}
	return &value[bool]{p, "", parse, strconv.FormatBool}
}

const maxPort = 65535

// port is a port to listen on or to dial.
func port(p *int, initial int) pflag.Value { return portFrom(p, initial, 1) }

// optionalPort is a port to listen on. 0 turns it off.
func optionalPort(p *int, initial int) pflag.Value { return portFrom(p, initial, 0) }

func portFrom(p *int, initial, lowest int) pflag.Value {
	return number(p, "PORT", initial, lowest, maxPort)
}

// number is a whole number in a range.
func number(p *int, kind string, initial, lowest, highest int) pflag.Value {
	*p = initial
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < lowest || n > highest {
			return 0, fmt.Errorf("must be a number from %d to %d", lowest, highest)
		}
		return n, nil
	}
	return &value[int]{p, kind, parse, strconv.Itoa}
}

func duration(p *time.Duration, initial time.Duration) pflag.Value {
	*p = initial
	parse := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, errors.New("must be a duration such as 30s or 5m")
		}
		return d, nil
	}
	return &value[time.Duration]{p, "DURATION", parse, time.Duration.String}
}

// list is a comma-separated list. If the flag is repeated, its values are appended.
func list(p *[]string, kind string) pflag.Value {
	parse := func(s string) ([]string, error) { return append(*p, splitList(s)...), nil }
	return &value[[]string]{p, kind, parse, func(words []string) string { return strings.Join(words, ",") }}
}

// splitList splits at commas, but not at commas within a pattern: `{a,b}` and `/x{1,2}/` are one element each.
func splitList(s string) []string {
	var words []string
	depth, start := 0, 0
	cut := func(end int) {
		if word := strings.TrimSpace(s[start:end]); word != "" {
			words = append(words, word)
		}
		start = end + 1
	}
	for i, c := range s {
		switch c {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth = max(0, depth-1)
		case ',':
			if depth == 0 {
				cut(i)
			}
		}
	}
	cut(len(s))
	return words
}

// pairs is a list of KEY=VALUE.
func pairs(p *map[string]string, kind string) pflag.Value {
	parse := func(s string) (map[string]string, error) {
		all := map[string]string{}
		maps.Copy(all, *p)
		for _, pair := range splitList(s) {
			key, rest, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("%q is not of the form key=value", pair)
			}
			all[strings.TrimSpace(key)] = strings.TrimSpace(rest)
		}
		return all, nil
	}
	format := func(all map[string]string) string {
		var words []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			words = append(words, key+"="+all[key])
		}
		return strings.Join(words, ",")
	}
	return &value[map[string]string]{p, kind, parse, format}
}
