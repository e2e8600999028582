package kind

import (
	"fmt"
	"regexp"
	"strings"
)

// CheckPattern refuses an entry of a list of namespaces that could never match:
// a malformed glob, or a malformed regular expression between slashes. Where
// Argo CD reads such lists it ignores what is malformed, and so do we; in a
// setting of our own it is a mistake that somebody should hear of.
func CheckPattern(s string) error {
	if len(s) > 1 && strings.HasPrefix(s, "/") && strings.HasSuffix(s, "/") {
		if _, err := regexp.Compile(s[1 : len(s)-1]); err != nil {
			return fmt.Errorf("%q is not a regular expression: %w", s, err)
		}
		return nil
	}
	if s == "" || parseGlob(s).bad {
		return fmt.Errorf("%q is not a glob", s)
	}
	return nil
}
