package query

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a query.
const (
	MaxQuery     = 4 << 10 // bytes
	maxTerms     = 32
	maxValues    = 64 // of one term
	minShortHash = 7  // of an abbreviated revision
)

// Query is a parsed query. All of its terms must match.
type Query struct {
	text  string
	terms []term
}

// term compares a field with values. It matches if any of them does.
type term struct {
	field  field
	op     operator
	values []string
	age    time.Duration
}

// operator compares a field with a value.
type operator string

const (
	equal      operator = "="
	notEqual   operator = "!="
	matches    operator = "~"
	notMatches operator = "!~"
	longer     operator = ">"
	shorter    operator = "<"
)

// operators lists longer ones first, so that "!=" is not read as "!".
var operators = []operator{notEqual, notMatches, equal, matches, longer, shorter}

// Error is an error of a query.
type Error struct {
	Position int // of the first wrong byte, from 1
	Message  string
}

func (e *Error) Error() string { return fmt.Sprintf("query, position %d: %s", e.Position, e.Message) }

// Parse parses a query: terms that are separated by spaces. A term is field, operator and value, or a text that any field
// may contain. Values in double quotes may contain spaces and commas.
func Parse(text string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, &Error{MaxQuery + 1, fmt.Sprintf("a query has at most %d bytes", MaxQuery)}
	}
	for i, r := range text {
		if r == utf8.RuneError || r < ' ' || r == 0x7f {
			return Query{}, &Error{i + 1, "control characters and invalid UTF-8 are not allowed"}
		}
	}
	p := &parser{text: text}
	q := Query{text: text}
	for p.skipSpaces(); p.at < len(text); p.skipSpaces() {
		if len(q.terms) == maxTerms {
			return Query{}, p.fail("a query has at most %d terms", maxTerms)
		}
		t, err := p.term()
		if err != nil {
			return Query{}, err
		}
		q.terms = append(q.terms, t)
	}
	return q, nil
}

// String returns the text of a query.
func (q Query) String() string { return q.text }

// UsesTime reports whether the result of a query changes although no Application does.
func (q Query) UsesTime() bool {
	for _, t := range q.terms {
		if t.field.kind == ageField {
			return true
		}
	}
	return false
}

// Exact returns the values to which a query restricts a field. It returns false if there is no such restriction.
func (q Query) Exact(name string) ([]string, bool) {
	for _, t := range q.terms {
		if t.field.name == name && t.op == equal {
			return t.values, true
		}
	}
	return nil, false
}

type parser struct {
	text string
	at   int
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{p.at + 1, fmt.Sprintf(format, args...)}
}

func (p *parser) skipSpaces() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func (p *parser) term() (term, error) {
	start := p.at
	for p.at < len(p.text) && isFieldByte(p.text[p.at]) {
		p.at++
	}
	name := p.text[start:p.at]
	for _, op := range operators {
		if strings.HasPrefix(p.text[p.at:], string(op)) {
			return p.comparison(start, name, op)
		}
	}
	p.at = start
	value, err := p.word(false)
	if err != nil {
		return term{}, err
	}
	if value == "" {
		p.at = start
		return term{}, p.fail("the text is empty")
	}
	return term{field: anyField, op: matches, values: []string{value}}, nil
}

// isFieldByte reports whether a byte can be part of a field, including the key of a label.
func isFieldByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/", c) >= 0
}

func (p *parser) comparison(start int, name string, op operator) (term, error) {
	at := p.at
	p.at = start
	f, err := fieldOf(name)
	if err != nil {
		return term{}, p.fail("%v", err)
	}
	if p.at = at; (f.kind == ageField) != (op == longer || op == shorter) {
		if f.kind == ageField {
			return term{}, p.fail("%s is a time span: use %s>1h or %s<10m", name, name, name)
		}
		return term{}, p.fail("%s cannot be compared with %s: use =, !=, ~ or !~", name, op)
	}
	p.at += len(op)
	t := term{field: f, op: op}
	if f.kind == ageField {
		t.age, err = p.age(name)
		return t, err
	}
	for {
		if len(t.values) == maxValues {
			return term{}, p.fail("a term has at most %d values", maxValues)
		}
		value, err := p.word(true)
		if err != nil {
			return term{}, err
		}
		t.values = append(t.values, value)
		if p.at == len(p.text) || p.text[p.at] != ',' {
			return t, nil
		}
		p.at++
	}
}

func (p *parser) age(name string) (time.Duration, error) {
	start := p.at
	text, err := p.word(false)
	if err != nil {
		return 0, err
	}
	age, err := parseAge(text)
	if err != nil {
		p.at = start
		return 0, p.fail("%q is not a time span: use for example %s>90s, 10m, 1h or 7d", text, name)
	}
	return age, nil
}

// parseAge parses a duration that may have days.
func parseAge(text string) (time.Duration, error) {
	hours := 1.0
	if days, ok := strings.CutSuffix(text, "d"); ok {
		text, hours = days+"h", 24
	}
	age, err := time.ParseDuration(text)
	if scaled := age.Hours() * hours; err == nil && (age < 0 || scaled > 24*36500) {
		err = fmt.Errorf("%s is out of range", text)
	}
	return age * time.Duration(hours), err
}

// word reads a value up to a space or, in a list, a comma. In double quotes it may contain both; \" and \\ are escapes.
func (p *parser) word(list bool) (string, error) {
	start := p.at
	if p.at == len(p.text) || p.text[p.at] != '"' {
		for p.at < len(p.text) && p.text[p.at] != ' ' && (!list || p.text[p.at] != ',') {
			if p.text[p.at] == '"' {
				return "", p.fail("a quote must be at the start of a value")
			}
			p.at++
		}
		return p.text[start:p.at], nil
	}
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			if p.at++; p.at < len(p.text) && p.text[p.at] != ' ' && (!list || p.text[p.at] != ',') {
				return "", p.fail("a space is missing after the quoted value")
			}
			return b.String(), nil
		case c == '\\' && p.at+1 < len(p.text) && (p.text[p.at+1] == '"' || p.text[p.at+1] == '\\'):
			p.at++
			b.WriteByte(p.text[p.at])
		default:
			b.WriteByte(c)
		}
	}
	p.at = start
	return "", p.fail("the closing quote is missing")
}
