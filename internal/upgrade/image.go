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

var (
	validID         = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)
	validTag        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	validDigest     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	validRepository = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,254}$`)
)

// sameVersion reports whether two names of a version are equal, with or without v.
func sameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// newer reports whether a version is newer than another. If they cannot be compared, it is not.
func newer(a, than string) bool {
	parsed, err := version.ParseSemantic(a)
	if err != nil {
		return false
	}
	other, err := version.ParseSemantic(than)
	return err == nil && other.LessThan(parsed)
}
