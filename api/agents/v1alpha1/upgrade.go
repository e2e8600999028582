package v1alpha1

import (
	"regexp"
	"strings"
)

var (
	imageTag        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	imageDigest     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	imageRepository = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,254}$`)
)

// IsImageTag reports whether s can be the tag of an image, and thus the version of an Upgrade.
func IsImageTag(s string) bool { return imageTag.MatchString(s) }

// IsImageDigest reports whether s can be the digest of an image.
func IsImageDigest(s string) bool { return imageDigest.MatchString(s) }

// IsImageRepository reports whether s can be the repository of an image. It has no tag and no digest.
func IsImageRepository(s string) bool {
	return imageRepository.MatchString(s) && strings.LastIndexByte(s, ':') <= strings.LastIndexByte(s, '/') // otherwise it is a tag
}

// SameVersion reports whether two names of a version are equal, with or without v.
func SameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }
