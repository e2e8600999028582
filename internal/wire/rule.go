package wire

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// rule says what a string may be.
type rule struct {
	max      int
	valid    func(string) bool
	what     string // for people: what is valid
	optional bool   // may be empty
}

// violation returns why a string breaks the rule; nothing: it does not.
func (r rule) violation(s string) string {
	switch {
	case s == "" && r.optional:
		return ""
	case s == "":
		return "is missing"
	case len(s) > r.max:
		return r.tooLong(len(s))
	case !r.valid(s):
		return fmt.Sprintf("%.64q is not %s", s, r.what)
	}
	return ""
}

func (r rule) tooLong(n int) string {
	return fmt.Sprintf("has %d bytes, at most %d are allowed", n, r.max)
}

// isLabel reports whether s is made of lower-case letters, digits and inner
// hyphens, as the names of namespaces are.
func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		inner := i > 0 && i < len(s)-1
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && inner) {
			return false
		}
	}
	return s != ""
}

// isSubdomain reports whether s is made of labels with dots between them, as the
// names of objects are.
func isSubdomain(s string) bool {
	for {
		label, rest, more := strings.Cut(s, ".")
		if !isLabel(label) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
}

func isToken(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// isText reports whether s can be shown to people as it is: a peer must not be
// able to drive somebody's terminal.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, isControl) < 0
}

func isControl(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }

// sanitizeText makes s fit for peopleText: what cannot be shown becomes a mark,
// what is too long is cut.
func sanitizeText(s string) string {
	if len(s) <= MaxText && isText(s) {
		return s
	}
	const more = "…"
	cut := len(s) > MaxText
	if cut {
		s = s[:MaxText] // and whatever follows must still fit
	}
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(c rune) rune {
		if isControl(c) {
			return ' '
		}
		return c
	}, s)
	if !cut && len(s) <= MaxText {
		return s
	}
	end := min(len(s), MaxText-len(more))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}
