package kind

import "testing"

func TestCheckPattern_RejectsMalformedPatterns(t *testing.T) {
	for _, good := range []string{"argocd", "team-*", "{a,b}-?", "[a-z]*", "/^team-[0-9]+$/", "*"} {
		if err := CheckPattern(good); err != nil {
			t.Errorf("%s: %v, want none", good, err)
		}
	}
	for _, bad := range []string{"", "[z-a]", "team-[", "{}", "/team-(/", "\xff"} {
		if CheckPattern(bad) == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
