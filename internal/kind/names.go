package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Limits of Kubernetes.
const (
	maxName  = 253
	maxLabel = 63
)

// isLabel reports whether s is a DNS-1123 label, as for namespaces.
func isLabel(s string) bool {
	return len(s) <= maxLabel && isSubdomain(s) && !strings.Contains(s, ".")
}

// isSubdomain reports whether s is a DNS-1123 subdomain, as for objects.
func isSubdomain(s string) bool {
	if len(s) == 0 || len(s) > maxName {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || !alphanumericEnds(part) || strings.ContainsFunc(part, func(r rune) bool {
			return !lowerAlphanumeric(r) && r != '-'
		}) {
			return false
		}
	}
	return true
}

func lowerAlphanumeric(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }

func alphanumericEnds(s string) bool {
	return lowerAlphanumeric(rune(s[0])) && lowerAlphanumeric(rune(s[len(s)-1]))
}

// checkKey rejects names that no object can have.
func checkKey(k engine.Key) error {
	if !isSubdomain(k.Name) {
		return reject(engine.Invalid, "%.80q is not a name that an object can have", k.Name)
	}
	if k.Namespace != "" && !isLabel(k.Namespace) {
		return reject(engine.Invalid, "%.80q is not a name that a namespace can have", k.Namespace)
	}
	return nil
}

// validUID reports whether s can be the UID of an object. It becomes an annotation.
func validUID(s string) bool {
	return len(s) > 0 && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '"' || r == '\\'
	})
}

// hashLength is the length of the hash in truncated names.
const hashLength = 16

// truncateName shortens a name that is too long for Kubernetes and appends a hash of the full name. Names of exactly
// the maximum length are truncated too, so that no full name looks like a truncated one.
func truncateName(name string) string {
	if len(name) < maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	head := []byte(name[:maxName-1-hashLength])
	for i := len(head) - 1; i >= 0 && !lowerAlphanumeric(rune(head[i])); i-- {
		head[i] = 'x'
	}
	return string(head) + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
