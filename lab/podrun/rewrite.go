package podrun

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expand replaces $(NAME) by the value of the variable. Unknown names stay. $$ is one dollar sign without a reference.
func expand(s string, env map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, closed := strings.Cut(after, ")")
		value, known := env[strings.TrimPrefix(name, "(")]
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "(") && closed && known:
			b.WriteString(value)
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
}

// rewriter replaces paths and addresses of a pod by local ones.
type rewriter struct {
	paths     []replacement // longest first
	addresses []replacement // longest first
	ports     map[int32]int
}

type replacement struct{ from, to string }

func newRewriter(mounts, addresses map[string]string, ports map[int32]int) rewriter {
	return rewriter{paths: longestFirst(mounts), addresses: longestFirst(addresses), ports: ports}
}

func longestFirst(m map[string]string) []replacement {
	var all []replacement
	for from, to := range m {
		all = append(all, replacement{from, to})
	}
	slices.SortFunc(all, func(a, b replacement) int {
		return cmp.Or(cmp.Compare(len(b.from), len(a.from)), cmp.Compare(a.from, b.from))
	})
	return all
}

// Characters of a path or a host name: next to them a match is a part of another name.
const wordLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// value rewrites addresses and paths in an argument or a variable. Replacements are not rewritten again.
func (r rewriter) value(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if to, n, ok := r.at(s, i); ok {
			b.WriteString(to)
			i += n
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// at returns the replacement of the n bytes at s[i:].
func (r rewriter) at(s string, i int) (to string, n int, ok bool) {
	if i > 0 && strings.IndexByte(wordLetters, s[i-1]) >= 0 {
		return "", 0, false
	}
	for _, p := range r.addresses {
		if rest, found := strings.CutPrefix(s[i:], p.from); found && endsWord(rest) {
			return p.to, len(p.from), true
		}
	}
	if i > 0 && s[i-1] == '/' { // a part of a longer path or a URL
		return "", 0, false
	}
	for _, p := range r.paths {
		if rest, found := strings.CutPrefix(s[i:], p.from); found && endsWord(rest) {
			return p.to, len(p.from), true
		}
	}
	return "", 0, false
}

func endsWord(rest string) bool {
	return rest == "" || strings.IndexByte(wordLetters, rest[0]) < 0
}

// ownAddress matches an address to listen on, or one inside the pod.
var ownAddress = regexp.MustCompile(`^(|\*|0\.0\.0\.0|127\.0\.0\.1|localhost|\[::\]|\[::1\]):([0-9]+)$`)

// port rewrites the value of a flag or variable for a port.
func (r rewriter) port(name, value string) string {
	host, number := "", ""
	if strings.HasSuffix(strings.ToLower(name), "port") {
		number = value
	} else if m := ownAddress.FindStringSubmatch(value); m != nil {
		host, number = m[1]+":", m[2]
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if local := r.ports[int32(n)]; err == nil && local != 0 {
		return host + strconv.Itoa(local)
	}
	return value
}

// args rewrites arguments, with the flags "--name value" and "--name=value", and then sets flags.
func (r rewriter) args(args []string, set map[string]string) []string {
	var out []string
	left := maps.Clone(set)
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		name := strings.TrimLeft(flag, "-")
		if name == flag || name == "" { // not a flag
			out = append(out, r.port("", r.value(args[i])))
			continue
		}
		follows := !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-")
		if override, ok := set[name]; ok {
			// A flag without "=" can be a switch or have its value in the next argument. A replaced flag always has a
			// value.
			if follows {
				i++
			}
			if _, first := left[name]; first {
				out = append(out, flag+"="+override)
				delete(left, name)
			}
			continue
		}
		switch {
		case joined:
			out = append(out, flag+"="+r.port(name, r.value(value)))
		case follows:
			out = append(out, args[i], r.port(name, r.value(args[i+1])))
			i++
		default:
			out = append(out, args[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		out = append(out, "--"+name+"="+left[name])
	}
	return out
}
