package upgrade

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// image is a reference of a container image.
type image struct{ repository, tag, digest string }

func parseImage(s string) image {
	var i image
	s, i.digest, _ = strings.Cut(s, "@")
	i.repository = s
	if at := strings.LastIndexByte(s, ':'); at > strings.LastIndexByte(s, '/') { // otherwise it is a port
		i.repository, i.tag = s[:at], s[at+1:]
	}
	return i
}

func (i image) String() string {
	s := i.repository
	if i.tag != "" {
		s += ":" + i.tag
	}
	if i.digest != "" {
		s += "@" + i.digest
	}
	return s
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

// newer reports whether a version is newer than another. If they cannot be compared, it is not.
func newer(a, than string) bool {
	parsed, err := version.ParseSemantic(a)
	if err != nil {
		return false
	}
	other, err := version.ParseSemantic(than)
	return err == nil && other.LessThan(parsed)
}
