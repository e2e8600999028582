package identity

import (
	"errors"
	"fmt"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// CheckAgentName validates an agent's name. It must be an RFC 1123 label, because it is used as a namespace.
func CheckAgentName(name string) error {
	switch {
	case name == "":
		return errors.New("agent name is empty")
	case len(name) > 63:
		return fmt.Errorf("invalid agent name %q: it has %d characters, at most 63 are allowed", clip(name), len(name))
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return fmt.Errorf("invalid agent name %q: use lower-case letters, digits and '-', with a letter or digit at either end", clip(name))
	}
	return nil
}

// clip bounds text that a peer has sent.
func clip(s string) string { return text.Truncate(s, 256) }
