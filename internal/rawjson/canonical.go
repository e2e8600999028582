package rawjson

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Canonical returns b in the one form that equal content has: sorted keys, no white space, one escaping of strings,
// numbers as written. It rejects what is not JSON, is not UTF-8, is nested too deep or has a duplicate key. If b is
// canonical already, one pass is enough.
func Canonical(b []byte) ([]byte, error) {
	return canonical(b, false)
}

// CanonicalCut is Canonical, with null in place of arrays and objects that are nested deeper than MaxDepth.
func CanonicalCut(b []byte) ([]byte, error) {
	return canonical(b, true)
}

func canonical(b []byte, cut bool) ([]byte, error) {
	w := canonicalizer{in: b, out: make([]byte, 0, len(b)), cut: cut, members: make([]member, 0, 32)}
	i, err := w.value(skipSpace(b, 0), 0)
	if err == nil {
		err = atEnd(b, i)
	}
	if err != nil {
		return nil, err
	}
	return w.out, nil
}

// Check reports whether b is JSON that Canonical accepts and not longer than maxSize bytes. If maxSize is 0, any length
// is accepted.
func Check(b []byte, maxSize int) error {
	if maxSize > 0 && len(b) > maxSize {
		return fail(maxSize, "too large")
	}
	_, err := Canonical(b)
	return err
}

type canonicalizer struct {
	in      []byte
	out     []byte
	cut     bool     // what is nested too deep becomes null
	members []member // of all open objects, innermost last
	scratch []byte
}

// member is the position of a member of an object in the output. Its key is from start to keyEnd, quotes included.
type member struct{ start, keyEnd, end int }

func (w *canonicalizer) value(i, depth int) (int, error) {
	if i >= len(w.in) {
		return i, fail(i, "expected a value")
	}
	switch c := w.in[i]; c {
	case '{':
		return w.object(i, depth)
	case '[':
		return w.array(i, depth)
	case '"':
		return w.text(i)
	case 't':
		return w.literal(i, "true")
	case 'f':
		return w.literal(i, "false")
	case 'n':
		return w.literal(i, "null")
	default:
		end, ok := number(w.in, i)
		if !ok {
			return end, fail(end, "expected a value")
		}
		w.out = append(w.out, w.in[i:end]...)
		return end, nil
	}
}

func (w *canonicalizer) literal(i int, word string) (int, error) {
	end := i + len(word)
	if end > len(w.in) || string(w.in[i:end]) != word {
		return i, fail(i, "expected a value")
	}
	w.out = append(w.out, word...)
	return end, nil
}

// tooDeep handles an array or object at i that is nested too deep.
func (w *canonicalizer) tooDeep(i int) (int, error) {
	if !w.cut {
		return i, fail(i, fmt.Sprintf("nested deeper than %d", MaxDepth))
	}
	end, ok := skipValue(w.in, i)
	if !ok {
		return i, fail(i, "expected a value")
	}
	w.out = append(w.out, "null"...)
	return end, nil
}

func (w *canonicalizer) array(i, depth int) (int, error) {
	if depth >= MaxDepth {
		return w.tooDeep(i)
	}
	w.out = append(w.out, '[')
	i = skipSpace(w.in, i+1)
	if i < len(w.in) && w.in[i] == ']' {
		w.out = append(w.out, ']')
		return i + 1, nil
	}
	for {
		end, err := w.value(i, depth+1)
		if err != nil {
			return end, err
		}
		i = skipSpace(w.in, end)
		if i >= len(w.in) {
			return i, fail(i, "array is not closed")
		}
		switch w.in[i] {
		case ',':
			w.out = append(w.out, ',')
			i = skipSpace(w.in, i+1)
		case ']':
			w.out = append(w.out, ']')
			return i + 1, nil
		default:
			return i, fail(i, "expected a comma")
		}
	}
}

func (w *canonicalizer) object(i, depth int) (int, error) {
	if depth >= MaxDepth {
		return w.tooDeep(i)
	}
	w.out = append(w.out, '{')
	i = skipSpace(w.in, i+1)
	if i < len(w.in) && w.in[i] == '}' {
		w.out = append(w.out, '}')
		return i + 1, nil
	}
	base, sorted := len(w.members), true
	for {
		m := member{start: len(w.out)}
		if i >= len(w.in) || w.in[i] != '"' {
			return i, fail(i, "expected a key")
		}
		end, err := w.text(i)
		if err != nil {
			return end, err
		}
		m.keyEnd = len(w.out)
		if len(w.members) > base {
			switch order := w.compare(w.members[len(w.members)-1], m); {
			case order == 0:
				return i, fail(i, "key appears twice")
			case order > 0:
				sorted = false
			}
		}
		if i = skipSpace(w.in, end); i >= len(w.in) || w.in[i] != ':' {
			return i, fail(i, "expected a colon")
		}
		w.out = append(w.out, ':')
		if i, err = w.value(skipSpace(w.in, i+1), depth+1); err != nil {
			return i, err
		}
		m.end = len(w.out)
		w.members = append(w.members, m)
		if i = skipSpace(w.in, i); i >= len(w.in) {
			return i, fail(i, "object is not closed")
		}
		if w.in[i] == '}' {
			break
		}
		if w.in[i] != ',' {
			return i, fail(i, "expected a comma")
		}
		w.out = append(w.out, ',')
		i = skipSpace(w.in, i+1)
	}
	if !sorted && !w.sort(w.members[base:]) {
		return i, fail(i, "key appears twice")
	}
	w.members = w.members[:base]
	w.out = append(w.out, '}')
	return i + 1, nil
}

// sort sorts the members of one object in the output.
func (w *canonicalizer) sort(members []member) bool {
	first, last := members[0].start, members[len(members)-1].end
	slices.SortFunc(members, w.compare)
	w.scratch = w.scratch[:0]
	for i, m := range members {
		if i > 0 {
			if w.compare(members[i-1], m) == 0 {
				return false
			}
			w.scratch = append(w.scratch, ',')
		}
		w.scratch = append(w.scratch, w.out[m.start:m.end]...)
	}
	copy(w.out[first:last], w.scratch)
	return true
}

func (w *canonicalizer) compare(a, b member) int {
	x, y := w.out[a.start+1:a.keyEnd-1], w.out[b.start+1:b.keyEnd-1]
	if bytes.IndexByte(x, '\\') < 0 && bytes.IndexByte(y, '\\') < 0 {
		return bytes.Compare(x, y)
	}
	s, _ := String(w.out[a.start:a.keyEnd])
	t, _ := String(w.out[b.start:b.keyEnd])
	return strings.Compare(s, t)
}

// text copies the string that starts at i.
func (w *canonicalizer) text(i int) (int, error) {
	start := i // of what is not copied yet
	for i++; i < len(w.in); {
		switch c := w.in[i]; {
		case c == '"':
			w.out = append(w.out, w.in[start:i+1]...)
			return i + 1, nil
		case c < 0x20:
			return i, fail(i, "control character in a string")
		case c >= 0x80:
			r, n := utf8.DecodeRune(w.in[i:])
			if r == utf8.RuneError && n <= 1 {
				return i, fail(i, "not UTF-8")
			}
			i += n
		case c == '\\':
			r, n := unescape(w.in[i:])
			if n == 0 {
				return i, fail(i, "unknown escape sequence")
			}
			w.out = append(w.out, w.in[start:i]...)
			w.out = appendEscaped(w.out, r)
			i += n
			start = i
		default:
			i++
		}
	}
	return i, fail(i, "string is not closed")
}
