package wire

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// rule describes the valid values of a string.
type rule struct {
	max      int
	valid    func([]byte) bool
	form     string // description of valid
	optional bool   // may be empty
}

// Rules of strings.
var (
	objectName    = rule{max: 253, valid: isSubdomain, form: "a lower-case RFC 1123 name"}
	namespaceName = rule{max: 63, valid: isLabel, form: "a lower-case RFC 1123 label", optional: true}
	agentName     = rule{max: 253, valid: isSubdomain, form: "a lower-case RFC 1123 name", optional: true}
	scopeName     = rule{max: 64, valid: isToken, form: tokenForm}
	shortToken    = rule{max: 64, valid: isToken, form: tokenForm, optional: true} // mode, mapping, code, ID
	capability    = rule{max: 64, valid: isToken, form: tokenForm}
	labelKey      = rule{max: 317, valid: isToken, form: tokenForm, optional: true}
	factKey       = rule{max: 317, valid: isToken, form: tokenForm}
	factValue     = rule{max: 63, valid: isToken, form: tokenForm, optional: true}
	uid           = rule{max: 128, valid: isToken, form: tokenForm, optional: true}
	address       = rule{max: 2048, valid: isToken, form: tokenForm, optional: true}
	tunnelToken   = rule{max: 256, valid: isToken, form: tokenForm, optional: true}
	buildVersion  = rule{max: 128, valid: isText, form: textForm, optional: true}
	eventReason   = rule{max: 128, valid: isToken, form: tokenForm, optional: true}
	messageText   = rule{max: MaxText, valid: isText, form: textForm, optional: true}

	eventID     = rule{max: 62, valid: isToken, form: tokenForm} // three numbers of 64 bits
	eventSource = rule{max: 320, valid: isToken, form: tokenForm}
	eventType   = rule{max: 128, valid: isToken, form: tokenForm}
)

const (
	tokenForm = "printable ASCII without spaces"
	textForm  = "UTF-8 without control characters"
)

// violation returns why a string violates the rule, or "" if it does not.
func (r *rule) violation(s []byte) string {
	switch {
	case len(s) == 0 && r.optional:
		return ""
	case len(s) == 0:
		return "is missing"
	case len(s) > r.max:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), r.max)
	case !r.valid(s):
		return fmt.Sprintf("%.64q is not %s", s, r.form)
	}
	return ""
}

// isLabel reports whether s has only lower-case letters, digits and inner hyphens, as names of namespaces.
func isLabel(s []byte) bool {
	for i := range s {
		c := s[i]
		inner := i > 0 && i < len(s)-1
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && inner) {
			return false
		}
	}
	return len(s) > 0
}

var dot = []byte(".")

// isSubdomain reports whether s has only labels with dots between them, as names of objects.
func isSubdomain(s []byte) bool {
	for {
		label, rest, more := bytes.Cut(s, dot)
		if !isLabel(label) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
}

func isToken(s []byte) bool {
	for i := range s {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// isText reports whether s can be shown to users. A peer must not be able to control their terminal.
func isText(s []byte) bool { return utf8.Valid(s) && bytes.IndexFunc(s, isControl) < 0 }

func isControl(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }

// sanitizeText makes s fit for messageText: it replaces invalid and control characters and truncates a long text.
func sanitizeText(s string) string {
	return text.Truncate(strings.Map(func(c rune) rune {
		if isControl(c) {
			return ' '
		}
		return c
	}, s), MaxText)
}
