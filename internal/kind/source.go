package kind

import (
	"net/url"
	"regexp"
	"strings"
)

// SourcePermitted implements Argo CD's rule whether an Application of a project may use a repository. `!x` matches all
// but x, and an entry of this form that does not match ends the evaluation.
func SourcePermitted(sourceRepos []string, repository string) bool {
	repository = NormalizeRepoURL(repository)
	matched := false
	for _, item := range sourceRepos {
		glob, deny := strings.CutPrefix(item, "!")
		glob = NormalizeRepoURL(glob)
		switch {
		case deny && globMatchPath(glob, repository):
			return false
		case deny, glob == "*", globMatchPath(glob, repository):
			matched = true
		}
	}
	return matched
}

// globMatchPath is globMatch for paths: `*` and `?` do not match a slash, `**` does.
func globMatchPath(glob, text string) bool {
	p := &pattern{sample: []string{""}, path: true}
	p.parse(glob)
	if p.bad {
		return false
	}
	expression, err := regexp.Compile(`(?s)\A(?:` + p.expression.String() + `)\z`)
	return err == nil && expression.MatchString(text)
}

var sshAddress = regexp.MustCompile(`^(ssh://)?([^/:]*?)@[^@]+$`)

// NormalizeRepoURL returns a repository URL as Argo CD compares it, or "" if it is none.
func NormalizeRepoURL(repository string) string {
	repository = strings.ToLower(strings.TrimSpace(repository))
	if sshAddress.MatchString(repository) && !strings.HasPrefix(repository, "ssh://") {
		repository = "ssh://" + strings.Replace(repository, ":", "/", 1)
	}
	parsed, err := url.Parse(strings.TrimSuffix(repository, ".git"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(parsed.String(), "ssh://")
}
