package rawjson

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes a JSON string. It returns false if b is something else.
func String(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return "", false
	}
	inner := b[1 : len(b)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		if bytes.IndexByte(inner, '"') >= 0 {
			return "", false
		}
		return string(inner), true
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		switch c := inner[i]; {
		case c == '"' || c < 0x20:
			return "", false
		case c != '\\':
			out = append(out, c)
			i++
		default:
			r, n := unescape(inner[i:])
			if n == 0 {
				return "", false
			}
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return string(out), true
}

// Characters that are escaped with a letter, and these letters.
const (
	escapeCharacters = "\"\\\b\f\n\r\t"
	escapeLetters    = `"\bfnrt`
)

// unescape decodes the escape sequence at the start of b. It returns length 0 if there is none. Half of a surrogate
// pair becomes U+FFFD, as in the API server.
func unescape(b []byte) (rune, int) {
	if len(b) < 2 || b[0] != '\\' {
		return 0, 0
	}
	if i := strings.IndexByte(escapeLetters, b[1]); i >= 0 {
		return rune(escapeCharacters[i]), 2
	}
	if b[1] == '/' {
		return '/', 2
	}
	r, ok := hex4(b[2:])
	if !ok || b[1] != 'u' {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, ok := hex4(b[8:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return utf8.RuneError, 6
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends one character in the canonical escaping: escaped only if necessary, in the shortest form.
func appendEscaped(out []byte, r rune) []byte {
	if i := strings.IndexRune(escapeCharacters, r); i >= 0 {
		return append(out, '\\', escapeLetters[i])
	}
	if r < 0x20 {
		return append(out, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
	}
	return utf8.AppendRune(out, r)
}

// AppendString appends s as a canonical JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(out []byte, s string) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if c >= utf8.RuneSelf && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		out = append(out, s[start:i]...)
		out = appendEscaped(out, r)
		i += size
		start = i
	}
	out = append(out, s[start:]...)
	return append(out, '"')
}

// Quote returns s as a canonical JSON string.
func Quote(s string) []byte { return AppendString(make([]byte, 0, len(s)+2), s) }

// Strings decodes an array of strings. It returns false if b is something else.
func Strings(b []byte) ([]string, bool) {
	var list []string
	all := true
	err := walk(b, array, func(_, value []byte) bool {
		s, ok := String(value)
		if ok {
			list = append(list, s)
		}
		all = ok
		return ok
	})
	return list, all && err == nil
}

// AppendStrings appends an array of strings.
func AppendStrings(out []byte, list []string) []byte {
	out = append(out, '[')
	for i, s := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendString(out, s)
	}
	return append(out, ']')
}

// StringMap decodes an object whose values are strings. It returns false if b is something else. Of equal keys the last
// one counts.
func StringMap(b []byte) (map[string]string, bool) {
	m := map[string]string{}
	all := true
	err := walk(b, object, func(key, value []byte) bool {
		k, ok1 := String(key)
		v, ok2 := String(value)
		all = ok1 && ok2
		m[k] = v
		return all
	})
	return m, all && err == nil
}
