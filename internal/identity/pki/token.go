package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Token is what a cluster joins with: where the hub is, how to recognise it, and
// a secret that is good for one cluster, once. Its text is one line, of letters
// that a shell leaves alone:
//
//	join://hub.example:443/w1/<pin of the CA>/<ID>.<secret>
type Token struct {
	Address string // host:port of the principal
	Agent   string
	Pin     Pin
	ID      string // names Secret argocd-agent-join-<ID> on the hub
	Secret  string
}

const tokenScheme = "join://"

// String is the whole line, secret and all.
func (t Token) String() string {
	return tokenScheme + strings.Join([]string{t.Address, t.Agent, t.Pin.String(), t.ID + "." + t.Secret}, "/")
}

// Host of the hub, without the port.
func (t Token) Host() string {
	host, _, _ := net.SplitHostPort(t.Address)
	return host
}

// ErrNotAToken says that a text is no token, rather than one that is spoilt.
var ErrNotAToken = errors.New("this is no join token: it begins with " + tokenScheme + "; copy the whole line that `argocd-agentctl agent join-token` has printed")

// ParseToken reads a token's line.
func ParseToken(line string) (Token, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), tokenScheme)
	if !ok {
		return Token{}, ErrNotAToken
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 {
		return Token{}, fmt.Errorf("the join token is incomplete: it has %d parts instead of 4; copy the whole line", len(parts))
	}
	t := Token{Address: parts[0], Agent: parts[1]}
	if err := checkAddress(t.Address); err != nil {
		return Token{}, fmt.Errorf("the join token's address of the hub: %w", err)
	}
	if err := checkAgent(t.Agent); err != nil {
		return Token{}, fmt.Errorf("the join token: %w", err)
	}
	var err error
	if t.Pin, err = ParsePin(parts[2]); err != nil {
		return Token{}, fmt.Errorf("the join token: %w; copy the whole line", err)
	}
	t.ID, t.Secret, _ = strings.Cut(parts[3], ".")
	if !isTokenID(t.ID) || len(t.Secret) != secretLength || !isURLBase64(t.Secret) {
		return Token{}, errors.New("the join token ends too early or too late, or was changed: copy the whole line")
	}
	return t, nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%.80q is not of the form host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%.80q: the port must be a number from 1 to 65535", address)
	}
	return nil
}

// checkAgent says what is wrong with an agent's name, an RFC 1123 label.
func checkAgent(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' || name[len(name)-1] == '-' {
		return fmt.Errorf("%.80q is no agent's name: at most 63 lower-case letters, digits and '-', with a letter or digit at either end", name)
	}
	if strings.Contains(name, "--") { // as kind.ValidateAgentName: a token for it would be used up in vain
		return fmt.Errorf("%q is no agent's name: it has two dashes in a row", name)
	}
	return nil
}

const (
	idBytes     = 5  // makes 8 letters: enough to tell tokens apart
	secretBytes = 20 // 160 bits
)

var (
	idEncoding   = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	secretLength = base64.RawURLEncoding.EncodedLen(secretBytes)
)

func newTokenSecret() (id, secret string) {
	b := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(b) // never fails
	return idEncoding.EncodeToString(b[:idBytes]), base64.RawURLEncoding.EncodeToString(b[idBytes:])
}

func isTokenID(id string) bool {
	return len(id) == idEncoding.EncodedLen(idBytes) && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func isURLBase64(s string) bool {
	_, err := base64.RawURLEncoding.DecodeString(s)
	return err == nil
}

// tokenHash is what the hub keeps of a secret. It has enough bits to need no
// slower function.
func tokenHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
