package kind

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// pattern is a glob of AppProjects and namespace lists: `*` and `?` without separators, `[a-z]`, `[!abc]`,
// `{this,that}` and `\` for a literal character. It becomes a regular expression, which takes linear time for every
// pattern.
type pattern struct {
	expression strings.Builder
	sample     []string // texts that the pattern probably matches
	bad        bool
	path       bool // `*` and `?` stop at slashes, `**` does not
}

// maxSamples bounds the samples of one pattern.
const maxSamples = 32

// globCharacters are the special characters of globs.
const globCharacters = `*?[{\`

// globMatch reports whether a glob matches text. A malformed glob matches nothing, as in Argo CD.
func globMatch(glob, text string) bool {
	if !strings.ContainsAny(glob, globCharacters) {
		return glob == text && utf8.ValidString(glob)
	}
	return compileGlob(glob)(text)
}

// compileGlob compiles a glob that is matched with many texts.
func compileGlob(glob string) func(text string) bool {
	if !strings.ContainsAny(glob, globCharacters[1:]) && !unreadable(glob) {
		return starsOnly(glob)
	}
	p := parseGlob(glob)
	if p.bad {
		return func(string) bool { return false }
	}
	expression, err := regexp.Compile(GlobExpression(glob))
	if err != nil {
		return func(string) bool { return false }
	}
	return expression.MatchString
}

// starsOnly is compileGlob for most globs: texts with `*` between them. It avoids the cost of compiling a regular
// expression.
func starsOnly(glob string) func(text string) bool {
	parts := strings.Split(glob, "*")
	first, last := parts[0], len(parts)-1
	return func(text string) bool {
		if last == 0 {
			return text == first
		}
		text, ok := strings.CutPrefix(text, first)
		if !ok {
			return false
		}
		for _, part := range parts[1:last] {
			_, text, ok = strings.Cut(text, part)
			if !ok {
				return false
			}
		}
		return strings.HasSuffix(text, parts[last])
	}
}

// permits implements Argo CD's rule for one AppProject pattern: `!x` matches all but x.
func permits(glob, text string) bool {
	if denies(glob) {
		return !globMatch(glob[1:], text)
	}
	return glob == "*" || globMatch(glob, text)
}

func denies(glob string) bool { return strings.HasPrefix(glob, "!") }

// matchesAny implements the rule for namespace lists: globs, or regular expressions between slashes.
func matchesAny(list []string, text string) bool {
	for _, item := range list {
		if len(item) > 1 && strings.HasPrefix(item, "/") && strings.HasSuffix(item, "/") {
			if expression, err := regexp.Compile(item[1 : len(item)-1]); err == nil && expression.MatchString(text) {
				return true
			}
		}
		if globMatch(item, text) {
			return true
		}
	}
	return false
}

// samples returns texts that a glob matches.
func samples(glob string) []string {
	if !strings.ContainsAny(glob, globCharacters) {
		return []string{glob}
	}
	p := parseGlob(glob)
	if p.bad {
		return nil
	}
	return p.sample
}

func parseGlob(glob string) *pattern {
	p := &pattern{sample: []string{""}}
	p.parse(glob)
	return p
}

func (p *pattern) parse(glob string) {
	if unreadable(glob) {
		p.bad = true
		return
	}
	if rest := p.sequence(glob, 0); rest != "" {
		p.bad = true
	}
}

// unreadable reports whether a glob is not valid text.
func unreadable(glob string) bool {
	return !utf8.ValidString(glob) || strings.ContainsRune(glob, utf8.RuneError) || strings.ContainsRune(glob, 0)
}

// sequence parses terms until the end or, within braces, until the comma or brace that ends an alternative. It returns
// the rest.
func (p *pattern) sequence(s string, braces int) string {
	for s != "" && !p.bad {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '*':
			one := p.path && !strings.HasPrefix(s, "**")
			s = strings.TrimLeft(s, "*")
			if one {
				p.expression.WriteString("[^/]*")
			} else {
				p.expression.WriteString(".*")
			}
			p.append("", "x", "zz-any-9")
		case r == '?':
			s = s[size:]
			if p.path {
				p.expression.WriteString("[^/]")
			} else {
				p.expression.WriteByte('.')
			}
			p.append("x", "9")
		case r == '[':
			s = p.class(s[size:])
		case r == '{':
			s = p.alternatives(s[size:], braces+1)
		case braces > 0 && (r == ',' || r == '}'):
			return s
		default:
			if r == '\\' {
				if s = s[size:]; s == "" {
					continue // a backslash at the end is ignored
				}
				r, size = utf8.DecodeRuneInString(s)
			}
			s = s[size:]
			p.expression.WriteString(regexp.QuoteMeta(string(r)))
			p.append(string(r))
		}
	}
	return s
}

// alternatives parses the rest of `{this,that}`. As in Argo CD, the end of the pattern closes open braces.
func (p *pattern) alternatives(s string, braces int) string {
	if braces > 8 {
		p.bad = true
		return s
	}
	before := p.sample
	var all []string
	something := false
	p.expression.WriteString("(?:")
	for !p.bad {
		p.sample = append([]string(nil), before...)
		length := p.expression.Len()
		s = p.sequence(s, braces)
		something = something || p.expression.Len() > length
		all = append(all, p.sample...)
		if p.bad || s == "" {
			break
		}
		end := s[0] == '}'
		s = s[1:]
		if end {
			break
		}
		p.expression.WriteByte('|')
	}
	p.expression.WriteByte(')')
	p.bad = p.bad || !something // `{}` matches nothing
	p.sample = all[:min(len(all), maxSamples)]
	return s
}

// class parses the rest of `[a-z]` or `[abc]`, negated with `!`.
func (p *pattern) class(s string) string {
	not := strings.HasPrefix(s, "!")
	if not {
		s = s[1:]
	}
	var chars []rune
	low, size := utf8.DecodeRuneInString(s)
	isRange := size > 0 && strings.HasPrefix(s[size:], "-")
	if isRange {
		high, highSize := utf8.DecodeRuneInString(s[size+1:])
		rest := s[size+1+highSize:]
		if highSize == 0 || high < low || !strings.HasPrefix(rest, "]") {
			p.bad = true
			return ""
		}
		chars, s = []rune{low, high}, rest[1:]
	} else {
		end := false
		for s != "" && !end {
			r, size := utf8.DecodeRuneInString(s)
			s = s[size:]
			switch {
			case r == ']':
				end = true
				continue
			case r == '\\' && s != "":
				r, size = utf8.DecodeRuneInString(s)
				s = s[size:]
			}
			chars = append(chars, r)
		}
		if !end || len(chars) == 0 {
			p.bad = true
			return ""
		}
	}
	p.expression.WriteByte('[')
	if not {
		p.expression.WriteByte('^')
	}
	for i, r := range chars {
		if isRange && i == 1 {
			p.expression.WriteByte('-')
		}
		p.expression.WriteString(classRune(r))
	}
	p.expression.WriteByte(']')
	if not {
		p.append("x", "9", "m")
	} else {
		p.append(string(chars[0]), string(chars[len(chars)-1]))
	}
	return s
}

func classRune(r rune) string {
	if strings.ContainsRune(`\]^-[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// append extends every sample by each ending, within bounds.
func (p *pattern) append(endings ...string) {
	if len(endings) == 1 {
		for i := range p.sample {
			p.sample[i] += endings[0]
		}
		return
	}
	var longer []string
	for _, ending := range endings {
		for _, s := range p.sample {
			if len(longer) < maxSamples {
				longer = append(longer, s+ending)
			}
		}
	}
	p.sample = longer
}
