package kind

import "testing"

func TestSourcePermitted_FollowsArgoCD(t *testing.T) {
	for _, c := range []struct {
		repos      []string
		repository string
		want       bool
	}{
		{nil, "https://git.example.com/org/app", false},
		{[]string{"*"}, "https://git.example.com/org/app", true},
		{[]string{"*"}, "git@example.com:org/app.git", true},
		{[]string{"https://git.example.com/org/app"}, "https://git.example.com/org/app.git", true},
		{[]string{"https://git.example.com/org/app.git"}, "https://GIT.example.com/org/app", true},
		{[]string{"https://git.example.com/org/app"}, "https://git.example.com/org/app2", false},
		{[]string{"https://git.example.com/org/*"}, "https://git.example.com/org/app", true},
		{[]string{"https://git.example.com/org/*"}, "https://git.example.com/org/sub/app", false},
		{[]string{"https://git.example.com/org/**"}, "https://git.example.com/org/sub/app", true},
		{[]string{"https://git.example.com/*"}, "https://git.example.com.evil.com/x", false},
		{[]string{"https://git.example.com/org/a?p"}, "https://git.example.com/org/app", true},
		{[]string{"git@example.com:org/*"}, "git@example.com:org/app.git", true},
		{[]string{"git@example.com:org/*"}, "ssh://git@example.com/org/app", true},
		{[]string{"git@example.com:org/*"}, "git@example.com:other/app.git", false},
		{[]string{"*", "!https://git.example.com/secret/*"}, "https://git.example.com/secret/app", false},
		{[]string{"!https://git.example.com/secret/*", "*"}, "https://git.example.com/secret/app.git", false},
		{[]string{"!https://git.example.com/secret/*"}, "https://git.example.com/org/app", true},
		{[]string{"https://charts.example.com"}, "https://charts.example.com", true},
		{[]string{"registry.example.com/charts"}, "registry.example.com/charts", true},
		{[]string{"https://git.example.com/org/[ab]pp"}, "https://git.example.com/org/app", true},
	} {
		if got := SourcePermitted(c.repos, c.repository); got != c.want {
			t.Errorf("%q of %q: %v", c.repository, c.repos, got)
		}
	}
}
