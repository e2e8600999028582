package kind

import (
	"testing"

	"pgregory.net/rapid"
)

// The expectations are those of the library that Argo CD matches with.
func TestGlob_Matches(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a/b", true}, {"a*c", "abbc", true}, {"a*c", "ab", false}, {"**", "x", true},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"[ab]x", "bx", true}, {"[ab]x", "cx", false}, {"[!ab]x", "cx", true}, {"[!ab]x", "ax", false},
		{"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"[!a-c]x", "dx", true}, {"{one,two}", "two", true}, {"{one,two}", "three", false},
		{"x{a*,b}", "xab", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`a\?`, "a?", true}, {"[", "[", false}, {"[]", "x", false}, {"[z-a]", "b", false},
		{"]", "]", true}, {"}", "}", true}, {"a,b", "a,b", true}, {"https://proxy:9090?agentName=*", "https://proxy:9090?agentName=one", true},
		{".", "x", false}, {"a+", "aa", false}, {"(a)", "(a)", true}, {"^a$", "a", false},
	} {
		if got := globMatch(c.glob, c.text); got != c.want {
			t.Errorf("%q on %q is %v", c.glob, c.text, got)
		}
	}
}

func TestGlob_MatchesSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringOf(rapid.RuneFrom([]rune(`ab-*?[]{},\`))).Draw(t, "glob")
		for _, s := range samples(glob) {
			if parseGlob(glob).bad {
				t.Fatalf("%q has samples although it is malformed", glob)
			}
			_ = globMatch(glob, s)
		}
		plain := rapid.StringMatching(`([ab-]|\*|\?|\{[ab*]{1,2},[ab]\}|\[[ab]\]){0,10}`).Draw(t, "plain")
		for _, s := range samples(plain) {
			if !globMatch(plain, s) {
				t.Fatalf("%q does not match its sample %q", plain, s)
			}
		}
	})
}

func TestSelector_Matches(t *testing.T) {
	labels := map[string]string{"team": "web", "env": "prod", "example.org/x": "", "legacy": "1"}
	for text, want := range map[string]bool{
		"": true, " ": true, "team=web": true, "team==web": true, "team=db": false, "team!=db": true, "team!=web": false, "absent!=x": true, "absent=": false,
		"example.org/x=": true, "team": true, "absent": false, "!absent": true, "!team": false, "env in (prod, stage)": true, "env in (stage)": false,
		"env notin (prod)": false, "env notin (stage)": true, "absent notin (x)": true, "absent in (x)": false, "team=web,env=prod": true,
		"team=web, env in (stage,test), legacy": false, "team = web , legacy": true,
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := s.Matches(labels); got != want {
			t.Errorf("%q matches: %v", text, got)
		}
	}
	for _, text := range []string{",", "a=b,", "=b", "a=b c", "a in b", "a in (b", "a among (b)", "a b", "a=-", "(a)", "a in (b)) ", "-a", "/a", "é=x", "a in (b c)"} {
		if s, err := ParseSelector(text); err == nil {
			t.Errorf("%q was read as %v", text, s)
		}
	}
}
