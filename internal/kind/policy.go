package kind

import "github.com/argocd-agent/argocd-agent/internal/rawjson"

// GlobMatch reports whether a glob of the kind that AppProjects have matches a text. A malformed one matches nothing.
func GlobMatch(glob, text string) bool { return globMatch(glob, text) }

// ValidGlob reports whether a glob can match something.
func ValidGlob(glob string) bool { return glob != "" && !parseGlob(glob).bad }

// GlobExpression returns a regular expression that matches what a valid glob matches.
func GlobExpression(glob string) string {
	return `(?s)\A(?:` + parseGlob(glob).expression.String() + `)\z`
}

// WithSpec returns the object with another spec.
func (o *Object) WithSpec(spec []byte) (*Object, error) {
	b, err := rawjson.Set(o.raw, spec, "spec")
	if err != nil {
		return nil, err
	}
	return Parse(b)
}
