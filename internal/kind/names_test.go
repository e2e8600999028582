package kind

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestNames_ValidInKubernetes(t *testing.T) {
	for name, want := range map[string][2]bool{ // label, subdomain
		"a": {true, true}, "a-b": {true, true}, "0": {true, true}, "a.b": {false, true}, "a--b": {true, true},
		"": {}, "-a": {}, "a-": {}, "A": {}, "a_b": {}, "a..b": {}, ".a": {}, "a.": {}, "a.-b": {}, "a/b": {}, "é": {}, "a\x00": {},
		strings.Repeat("a", 63): {true, true}, strings.Repeat("a", 64): {false, true}, strings.Repeat("a", 253): {false, true}, strings.Repeat("a", 254): {},
	} {
		if isLabel(name) != want[0] || isSubdomain(name) != want[1] {
			t.Errorf("%q: label %v, subdomain %v", name, isLabel(name), isSubdomain(name))
		}
	}
	for name, ok := range map[string]bool{"a": true, "a-b": true, "a--b": false, "a.b": false, "": false} {
		if (ValidateAgentName(name) == nil) != ok {
			t.Errorf("agent name %q: %v", name, ValidateAgentName(name))
		}
	}
}

func TestProjectName_OnHub(t *testing.T) {
	for _, c := range []struct{ agent, project, want string }{
		{"one", "default", "one-default"}, {"a", "b-c", "a--b-c"}, {"a-b", "c", "a-b-c"}, {"a", "b.c", "a-b.c"}, {"a", "b--c", "a--b--c"},
	} {
		if got := ProjectName(c.agent, c.project); got != c.want {
			t.Errorf("%s of %s is %s", c.project, c.agent, got)
		}
	}
	for _, name := range []string{"default", "", "-", "a-", "-a", "a--b", "A-b", "a-b_c", "a--", "--a"} {
		if agent, project, ok := SplitProjectName(name); ok {
			t.Errorf("%q was split into %q and %q", name, agent, project)
		}
	}
}

func agentNames() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-b0]([a-b0]?(-?[a-b0]){0,30})`).Filter(func(s string) bool { return ValidateAgentName(s) == nil })
}

func objectNames(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		length := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(max(1, most-30), most)).Draw(t, "length")
		b := []byte(rapid.StringOfN(rapid.RuneFrom([]rune("ab-.0")), length, length, -1).Draw(t, "name"))
		for i := range b { // a dash or dot stands only between letters
			edge := i == 0 || i == len(b)-1
			if b[i] == '.' && (edge || b[i-1] == '.' || b[i-1] == '-') || b[i] == '-' && (edge || b[i-1] == '.') {
				b[i] = 'a'
			}
		}
		return string(b)
	}).Filter(isSubdomain)
}

func TestProjectName_IsUniqueOnHub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := agentNames().Draw(t, "a"), agentNames().Draw(t, "b")
		p, q := objectNames(maxName).Draw(t, "p"), objectNames(maxName).Draw(t, "q")
		if rapid.Bool().Draw(t, "shift") { // what a plain dash would confuse
			if head, tail, ok := strings.Cut(p, "-"); ok && ValidateAgentName(a+"-"+head) == nil && isSubdomain(tail) {
				b, q = a+"-"+head, tail
			}
		}
		name := ProjectName(a, p)
		if !isSubdomain(name) {
			t.Fatalf("%q is no name", name)
		}
		if (a != b || p != q) && name == ProjectName(b, q) {
			t.Fatalf("%s of %s and %s of %s are both %s", p, a, q, b, name)
		}
		agent, project, ok := SplitProjectName(name)
		if !ok || agent != a {
			t.Fatalf("%s is of %q, not %q", name, agent, a)
		}
		if len(name) < maxName && project != p {
			t.Fatalf("%s is %q, not %q", name, project, p)
		}
	})
}

func TestApplicationName_IsUniqueOnHub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespaces := rapid.SampledFrom([]string{"", "a", "a-b", strings.Repeat("n", 63)})
		k := engine.Key{Namespace: namespaces.Draw(t, "namespace"), Name: objectNames(maxName).Draw(t, "name")}
		l := engine.Key{Namespace: k.Namespace, Name: objectNames(maxName).Draw(t, "other")}
		if !isSubdomain(hubName(k)) {
			t.Fatalf("%q is no name", hubName(k))
		}
		if k != l && hubName(k) == hubName(l) {
			t.Fatalf("%s and %s are both %s", k, l, hubName(k))
		}
		if s := sourceName(k); s != "" && parseSourceName(s) != k || s == "" && hubName(k) != k.Name {
			t.Fatalf("%s is recorded as %q", k, s)
		}
	})
}
