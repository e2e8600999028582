package identity

import (
	"fmt"
	"strings"
)

// CheckAgentName says what is wrong with an agent's name. It becomes the name of
// a namespace and part of others, so it is an RFC 1123 label.
func CheckAgentName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the agent's name is empty")
	case len(name) > 63:
		return fmt.Errorf("%q is no agent's name: it has %d characters, at most 63 are allowed", clip(name), len(name))
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return fmt.Errorf("%q is no agent's name: lower-case letters, digits and '-' are allowed, with a letter or digit at either end", clip(name))
	}
	return nil
}

// clip keeps what a stranger has sent to a readable length.
func clip(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
