package kind

import (
	"fmt"
	"regexp"
	"strings"
)

// CheckPattern rejects an entry of a namespace list that can never match: a malformed glob, or a malformed regular
// expression between slashes. Argo CD ignores malformed entries, and so do we. In our own settings they are reported.
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
