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

// value is a flag's value: what reads it, and what it is called in the help.
type value[T any] struct {
	target *T
	kind   string // such as FILE; empty: a switch
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

func text(p *string, kind, standard string) pflag.Value {
	*p = standard
	same := func(s string) (string, error) { return s, nil }
	return &value[string]{p, kind, same, func(s string) string { return s }}
}

// onOff is a switch, off unless somebody turns it on.
func onOff(p *bool, standard bool) pflag.Value {
	*p = standard
	parse := func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, errors.New("it must be true or false")
		}
		return b, nil
	}
	return &value[bool]{p, "", parse, strconv.FormatBool}
}

// choice is one of a few words.
func choice[T ~string](p *T, standard T, words ...T) pflag.Value {
	*p = standard
	spelled := make([]string, len(words))
	for i, word := range words {
		spelled[i] = string(word)
	}
	parse := func(s string) (T, error) {
		if !slices.Contains(words, T(s)) {
			return "", fmt.Errorf("it must be one of %s", strings.Join(spelled, ", "))
		}
		return T(s), nil
	}
	return &value[T]{p, strings.Join(spelled, "|"), parse, func(word T) string { return string(word) }}
}

func number(p *int, kind string, standard, least, most int) pflag.Value {
	*p = standard
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("it must be a number from %d to %d", least, most)
		}
		return n, nil
	}
	return &value[int]{p, kind, parse, strconv.Itoa}
}

// port is one to listen on or to dial.
func port(p *int, standard int) pflag.Value { return number(p, "PORT", standard, 1, maxPort) }

// optionalPort is off at 0.
func optionalPort(p *int, standard int) pflag.Value { return number(p, "PORT", standard, 0, maxPort) }

const maxPort = 65535

func duration(p *time.Duration, standard time.Duration) pflag.Value {
	*p = standard
	parse := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, errors.New("it must be a duration such as 30s or 5m")
		}
		return d, nil
	}
	return &value[time.Duration]{p, "DURATION", parse, time.Duration.String}
}

// list is a list of words. A flag that is given several times adds up.
func list(p *[]string, kind string) pflag.Value {
	parse := func(s string) ([]string, error) { return append(*p, splitList(s)...), nil }
	return &value[[]string]{p, kind, parse, func(words []string) string { return strings.Join(words, ",") }}
}

// splitList splits at commas, but not at those within a pattern: `{a,b}` and
// `/x{1,2}/` are one word each.
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

// pairs is a list of key=value.
func pairs(p *map[string]string, kind string) pflag.Value {
	parse := func(s string) (map[string]string, error) {
		all := map[string]string{}
		maps.Copy(all, *p)
		for _, word := range splitList(s) {
			key, rest, ok := strings.Cut(word, "=")
			if !ok {
				return nil, fmt.Errorf("%q is not of the form key=value", word)
			}
			all[strings.TrimSpace(key)] = strings.TrimSpace(rest)
		}
		return all, nil
	}
	format := func(all map[string]string) string {
		var words []string
		for key, word := range all {
			words = append(words, key+"="+word)
		}
		slices.Sort(words)
		return strings.Join(words, ",")
	}
	return &value[map[string]string]{p, kind, parse, format}
}
