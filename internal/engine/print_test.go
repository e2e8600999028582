package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// names turns hashes back into what a reader knows: keys and contents.
type names struct {
	keys     map[KeyHash]string
	versions map[Version]string
}

func newNames() *names {
	return &names{keys: map[KeyHash]string{}, versions: map[Version]string{}}
}

func (n *names) content(key Key, content string) {
	n.keys[key.Hash()] = key.String()
	n.versions[VersionOf([]byte(content))] = content
}

// recordKeys picks up names from a message.
func (n *names) recordKeys(m Message) {
	if d, ok := m.(Delta); ok {
		for _, it := range d.Items {
			n.content(it.Key, string(it.Content))
		}
	}
}

func (n *names) version(v Version) string {
	if s, ok := n.versions[v]; ok {
		if s == "" {
			return `""`
		}
		return short(s)
	}
	if v.IsZero() {
		return "-"
	}
	return v.String()[:6]
}

func (n *names) hash(h KeyHash) string {
	if s, ok := n.keys[h]; ok {
		return s
	}
	return fmt.Sprintf("%016x", uint64(h))
}

func (n *names) message(m Message) string {
	switch m := m.(type) {
	case Hello:
		return fmt.Sprintf("Hello epoch %d.%d, store %s@%d", m.Epoch.Incarnation, m.Epoch.Attempt, m.Store.UID, m.Store.Revision) + mark(", knows mark", m.Known.Mark.Number)
	case Welcome:
		text := fmt.Sprintf("Welcome store %s@%d", m.Store.UID, m.Store.Revision) + mark(", mark", m.Store.Mark.Number)
		if m.HubGeneration > 0 {
			text += fmt.Sprintf(", generation %d", m.HubGeneration)
		}
		if m.Predecessor.UID != "" {
			text += fmt.Sprintf(" after %s@%d", m.Predecessor.UID, m.Predecessor.Revision)
		}
		return text
	case Roots:
		return "Roots" + list(m.Items, n.root) + n.same(", same", m.Same) + mark(", mark", m.Mark)
	case Equal:
		return "Equal" + list(m.Seen, func(s Seen) string { return fmt.Sprintf("%s@%d", s.Scope, s.Revision) }) + mark(", mark", m.Mark)
	case Same:
		return n.same("Same", m.Items)
	case Ask:
		return fmt.Sprintf("Ask %s round %d%s", m.Scope, m.Round, list(m.Prefixes, n.prefix))
	case Answer:
		return fmt.Sprintf("Answer %s round %d%s", m.Scope, m.Round, list(m.Branches, n.branch))
	case Want:
		return fmt.Sprintf("Want %s%s", m.Scope, n.sorted(m.Hashes))
	case Delta:
		return fmt.Sprintf("Delta %s%s", m.Scope, list(m.Items, n.item))
	case Ack:
		return fmt.Sprintf("Ack %s%s", m.Scope, list(m.Items, n.ack))
	case Finished:
		return fmt.Sprintf("Finished %s %s=%s", m.Scope, m.Key, n.version(m.Version))
	case Held:
		return "Held" + n.held(m)
	case Confirm:
		return fmt.Sprintf("Confirm %s %s", cmp.Or(m.Scope, "store"), m.ID)
	case Bye:
		return fmt.Sprintf("Bye %s: %s", m.Code, m.Message)
	}
	return fmt.Sprintf("%T%+v", m, m)
}

// list prints elements, and of many only the first.
func list[T any](items []T, show func(T) string) string {
	var b strings.Builder
	for i, it := range items {
		if i == 6 && len(items) > 7 {
			fmt.Fprintf(&b, " … %d more", len(items)-i)
			break
		}
		b.WriteString(" " + show(it))
	}
	return b.String()
}

func (n *names) sorted(hashes []KeyHash) string {
	var s []string
	for _, h := range hashes {
		s = append(s, n.hash(h))
	}
	slices.Sort(s)
	return list(s, func(s string) string { return s })
}

func (n *names) root(r Root) string {
	return fmt.Sprintf("%s:%d/%04x", r.Scope, r.Count, r.Sum.Hi>>48)
}

func (n *names) same(word string, items []Root) string {
	if len(items) == 0 {
		return ""
	}
	return word + list(items, func(r Root) string { return fmt.Sprintf("%s/%04x", r.Scope, r.Sum.Hi>>48) })
}

func (n *names) prefix(p Prefix) string {
	return "/" + fmt.Sprintf("%016x", p.Bits)[:2*p.Len]
}

func (n *names) branch(b Branch) string {
	if b.Split {
		return fmt.Sprintf("%s[%d sums]", n.prefix(b.Prefix), len(b.Sums))
	}
	items := slices.Clone(b.Items)
	slices.SortFunc(items, func(a, b Listed) int { return cmp.Compare(n.hash(a.Hash), n.hash(b.Hash)) })
	return n.prefix(b.Prefix) + "{" + strings.TrimSpace(list(items, func(l Listed) string {
		return n.hash(l.Hash) + "=" + n.version(l.Version)
	})) + "}"
}

func (n *names) item(it DeltaItem) string {
	s := fmt.Sprintf("#%d %s", it.Seq, it.Key)
	if it.Gone {
		return s + " gone"
	}
	s += "=" + short(string(it.Content))
	if len(it.Extra) > 0 {
		s += "+" + string(it.Extra)
	}
	return s
}

func short(s string) string {
	if len(s) > 24 {
		return fmt.Sprintf("%s…(%d)", s[:8], len(s))
	}
	return s
}

func (n *names) ack(a AckItem) string {
	s := fmt.Sprintf("#%d %s", a.Seq, a.Key)
	if a.Code != OK {
		s += " " + string(a.Code)
	}
	return s
}

func (n *names) held(h Held) string {
	s := ""
	if h.Scope != "" {
		s = " " + h.Scope
	}
	if h.Reason == "" {
		return s + " nothing"
	}
	if h.Count > 0 {
		s += fmt.Sprintf(" %d of %d", h.Count, h.Of)
	}
	return s + " (" + h.Reason + ")"
}

func (n *names) event(f Event) string {
	s := string(f.Type)
	if f.Held != nil {
		return s + n.held(*f.Held)
	}
	if f.Scope != "" {
		s += " " + f.Scope
	}
	if f.Key != (Key{}) {
		s += " " + f.Key.String()
	}
	if f.Code != OK {
		s += " " + string(f.Code)
	}
	if f.Message != "" {
		s += ": " + f.Message
	}
	return s
}

func mark(text string, number uint64) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("%s %d", text, number)
}
