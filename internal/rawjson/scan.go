package rawjson

import (
	"bytes"
	"fmt"
)

// MaxDepth bounds how deep arrays and objects may be nested in each other.
const MaxDepth = 256

// Error is an error at an offset of a piece of JSON.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("JSON at byte %d: %s", e.Offset, e.Reason) }

func fail(offset int, reason string) error { return &Error{Offset: offset, Reason: reason} }

// skipSpace returns the offset of the next byte that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the offset after the string that starts at i. It does not check the content.
func skipString(b []byte, i int) (int, bool) {
	if i >= len(b) || b[i] != '"' {
		return 0, false
	}
	for j := i + 1; j < len(b); {
		q := bytes.IndexByte(b[j:], '"')
		if q < 0 {
			return 0, false
		}
		q += j
		escapes := 0
		for k := q - 1; k > i && b[k] == '\\'; k-- {
			escapes++
		}
		if escapes%2 == 0 {
			return q + 1, true
		}
		j = q + 1
	}
	return 0, false
}

// skipValue returns the offset after the value that starts at i, by counting brackets.
func skipValue(b []byte, i int) (int, bool) {
	if i >= len(b) {
		return 0, false
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				end, ok := skipString(b, i)
				if !ok {
					return 0, false
				}
				i = end
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1, true
				}
			}
			i++
		}
		return 0, false
	}
	start := i
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ':', ' ', '\n', '\t', '\r', '"', '{', '[':
			return i, i > start
		}
		i++
	}
	return i, i > start
}

// container is how objects or arrays are written.
type container struct {
	open, end byte
	name      string
}

var (
	object = container{'{', '}', "object"}
	array  = container{'[', ']', "array"}
)

// walk calls visit for each member of the object or array b, until visit returns false. The key is quoted. Elements of
// an array have none.
func walk(b []byte, as container, visit func(key, value []byte) bool) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != as.open {
		return fail(i, "not an "+as.name)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == as.end {
		return atEnd(b, i+1)
	}
	for {
		var key []byte
		if as.open == '{' {
			keyEnd, ok := skipString(b, i)
			if !ok {
				return fail(i, "expected a key")
			}
			key = b[i:keyEnd]
			i = skipSpace(b, keyEnd)
			if i >= len(b) || b[i] != ':' {
				return fail(i, "expected a colon")
			}
			i = skipSpace(b, i+1)
		}
		end, ok := skipValue(b, i)
		if !ok {
			return fail(i, "expected a value")
		}
		if !visit(key, b[i:end]) {
			return nil
		}
		i = skipSpace(b, end)
		if i >= len(b) {
			return fail(i, as.name+" is not closed")
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case as.end:
			return atEnd(b, i+1)
		default:
			return fail(i, "expected a comma")
		}
	}
}

func atEnd(b []byte, i int) error {
	if i = skipSpace(b, i); i < len(b) {
		return fail(i, "something follows the value")
	}
	return nil
}

// keyIs reports whether a quoted key equals name.
func keyIs(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	decoded, ok := String(key)
	return ok && decoded == name
}

// number returns the offset after the number that starts at i.
func number(b []byte, i int) (int, bool) {
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case !digits():
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}
