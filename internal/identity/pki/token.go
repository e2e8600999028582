package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Token is a join token: the address of the hub, the pin of its CA, and a secret that is valid for one cluster, once. Its
// text is one line that needs no quotes in a shell:
//
//	join://hub.example:443/w1/<pin of the CA>/<ID>.<secret>
//
// A hub can have several addresses, which are separated by commas and have the same port and CA.
type Token struct {
	Address string // host:port of the principal, or several
	Agent   string
	Pin     Pin
	ID      string // names Secret argocd-agent-join-<ID> on the hub
	Secret  string
}

const tokenScheme = "join://"

// String returns the whole line, including the secret.
func (t Token) String() string {
	return tokenScheme + strings.Join([]string{t.Address, t.Agent, t.Pin.String(), t.ID + "." + t.Secret}, "/")
}

// Addresses returns the addresses of the hub, the preferred one first.
func (t Token) Addresses() []string { return strings.Split(t.Address, ",") }

// Servers returns the hosts of the addresses, and their port.
func (t Token) Servers() (hosts []string, port string) {
	for _, address := range t.Addresses() {
		var host string
		host, port, _ = net.SplitHostPort(address) // CreateToken and ParseToken have checked it
		hosts = append(hosts, host)
	}
	return hosts, port
}

// ErrNotAToken means that a text is not a join token, as opposed to a damaged one.
var ErrNotAToken = errors.New("not a join token: it must begin with " + tokenScheme + "; copy the whole line that `argocd-agentctl agent join-token` printed")

// ParseToken parses a join token.
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
	if err := checkAddresses(t); err != nil {
		return Token{}, fmt.Errorf("join token: address of the hub: %w", err)
	}
	if err := checkAgent(t.Agent); err != nil {
		return Token{}, fmt.Errorf("join token: %w", err)
	}
	var err error
	if t.Pin, err = ParsePin(parts[2]); err != nil {
		return Token{}, fmt.Errorf("join token: %w; copy the whole line", err)
	}
	t.ID, t.Secret, _ = strings.Cut(parts[3], ".")
	if !isTokenID(t.ID) || len(t.Secret) != secretLength || !isURLBase64(t.Secret) {
		return Token{}, errors.New("join token is damaged: copy the whole line")
	}
	return t, nil
}

// maxAddresses is the number of addresses that an agent accepts.
const maxAddresses = 8

func checkAddresses(t Token) error {
	addresses := t.Addresses()
	if len(addresses) > maxAddresses {
		return fmt.Errorf("there are %d: at most %d are possible", len(addresses), maxAddresses)
	}
	for i, address := range addresses {
		if err := checkAddress(address); err != nil {
			return err
		}
		if slices.Contains(addresses[:i], address) {
			return fmt.Errorf("%.80q is there twice", address)
		}
		if _, first, _ := net.SplitHostPort(addresses[0]); !strings.HasSuffix(address, ":"+first) {
			return fmt.Errorf("%.80q: all addresses need the same port", address)
		}
	}
	return nil
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

// CheckAgentName validates an agent's name. It must be an RFC 1123 label, because it is used as a namespace.
func CheckAgentName(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' || name[len(name)-1] == '-' {
		return fmt.Errorf("invalid agent name %.80q: use at most 63 lower-case letters, digits and '-', with a letter or digit at either end", name)
	}
	return nil
}

// checkAgent is CheckAgentName for an agent that joins. kind.ValidateAgentName rejects "--", too.
func checkAgent(name string) error {
	if strings.Contains(name, "--") {
		return fmt.Errorf("invalid agent name %q: it has two dashes in a row", text.Truncate(name, 80))
	}
	return CheckAgentName(name)
}

const (
	idBytes     = 5  // 8 letters
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

// tokenHash is what the hub stores of a secret. The secret has enough entropy for a fast hash.
func tokenHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
