package identity

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Method finds the agent's name in what the transport has verified. It is
// written, in the setting --auth, as one of
//
//	mtls:subject:<expression>   the client certificate's subject
//	mtls:<expression>           the same
//	mtls:uri:<expression>       a URI in its subject alternative names
//	header:<name>:<expression>  a header that a mesh adds
//
// The expression is a regular expression of Go's. It is not anchored: write ^
// and $ where they are meant. It is matched against
//
//   - the whole subject in the form of RFC 2253, the last attribute first:
//     CN=agent-a,OU=fleet,O=example
//   - each URI by itself, for example spiffe://example/ns/argocd/sa/agent-a;
//     if several match, they have to agree on the name
//   - the header's value, of which there has to be exactly one
//
// If the expression has a group in parentheses, what the first one matched is
// the name. If it has none, a certificate that matches is called by its
// subject's common name, and with uri and header the name is all that matched.
// An empty expression matches everything. The name has to be an RFC 1123 label.
type Method struct {
	source source
	header string
	expr   *regexp.Regexp
	text   string
}

type source string

const (
	fromSubject source = "subject"
	fromURI     source = "uri"
	fromHeader  source = "header"
)

// ParseMethod reads the setting --auth.
func ParseMethod(text string) (*Method, error) {
	m := &Method{text: text}
	kind, rest, _ := strings.Cut(text, ":")
	expr := rest
	switch kind {
	case "mtls":
		m.source = fromSubject
		if after, ok := strings.CutPrefix(rest, "subject:"); ok {
			expr = after
		} else if after, ok := strings.CutPrefix(rest, "uri:"); ok {
			m.source, expr = fromURI, after
		}
	case "header":
		m.source = fromHeader
		m.header, expr, _ = strings.Cut(rest, ":")
		m.header = strings.ToLower(m.header)
		if !isHeaderName(m.header) {
			return nil, fmt.Errorf("authentication method %q: %q is no name of a header; write header:<name>:<expression>", text, m.header)
		}
	default:
		return nil, fmt.Errorf("authentication method %q is unknown: write mtls:subject:<expression>, mtls:uri:<expression>, mtls:<expression> or header:<name>:<expression>", text)
	}
	var err error
	if m.expr, err = regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("authentication method %q: %w", text, err)
	}
	return m, nil
}

func isHeaderName(s string) bool {
	return s != "" && !strings.HasPrefix(s, "grpc-") && !strings.HasSuffix(s, "-bin") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// String returns the method as it was written.
func (m *Method) String() string { return m.text }

// Plaintext reports whether the method relies on a mesh that has taken off the
// encryption, rather than on a certificate.
func (m *Method) Plaintext() bool { return m.source == fromHeader }

// ByURI reports whether the name is found in a URI of a certificate.
func (m *Method) ByURI() bool { return m.source == fromURI }

// AgentFromCertificate names the agent that a verified certificate belongs to.
func (m *Method) AgentFromCertificate(cert *x509.Certificate) (string, error) {
	if m.source == fromURI {
		return m.ofURIs(cert)
	}
	subject := cert.Subject.String()
	if err := unambiguous(cert); err != nil {
		return "", fmt.Errorf("subject %q: %w", clip(subject), err)
	}
	name, ok := m.match(subject)
	if !ok {
		return "", fmt.Errorf("the expression %q does not match the certificate's subject %q: change --auth on the principal, or issue the agent another certificate", m.expr, clip(subject))
	}
	if m.expr.NumSubexp() == 0 {
		name = cert.Subject.CommonName
	}
	if err := CheckAgentName(name); err != nil {
		return "", fmt.Errorf("in the certificate's subject %q, by the expression %q: %w", clip(subject), m.expr, err)
	}
	return name, nil
}

// unambiguous refuses subjects in which one attribute looks like another:
// whoever may choose some attribute of a certificate must not choose the name.
func unambiguous(cert *x509.Certificate) error {
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	names := 0
	for _, attribute := range cert.Subject.Names {
		if attribute.Type.Equal(commonName) {
			names++
		}
		if value, ok := attribute.Value.(string); ok && strings.Contains(strings.ToUpper(value), "CN=") {
			return errors.New("an attribute of it contains \"CN=\", so that it could be taken for another name")
		}
	}
	if names > 1 {
		return errors.New("it has several common names")
	}
	return nil
}

func (m *Method) ofURIs(cert *x509.Certificate) (string, error) {
	found := ""
	var all []string
	for _, uri := range cert.URIs {
		all = append(all, uri.String())
		name, ok := m.match(uri.String())
		switch {
		case !ok || name == found:
		case found != "":
			return "", fmt.Errorf("several URIs of the certificate match the expression %q and name different agents, %q and %q", m.expr, clip(found), clip(name))
		default:
			found = name
		}
	}
	if found == "" {
		return "", fmt.Errorf("the expression %q matches none of the certificate's URIs %q (subject %q): change --auth on the principal, or issue the agent another certificate",
			m.expr, clip(strings.Join(all, ", ")), clip(cert.Subject.String()))
	}
	if err := CheckAgentName(found); err != nil {
		return "", fmt.Errorf("in the certificate's URIs %q, by the expression %q: %w", clip(strings.Join(all, ", ")), m.expr, err)
	}
	return found, nil
}

// ofHeader names the agent that a mesh vouches for.
func (m *Method) ofHeader(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", fmt.Errorf("the request has no header %q: does the mesh add it, and does the agent connect through the mesh?", m.header)
	case 1:
	default: // one of them may be the agent's own
		return "", fmt.Errorf("the request has %d headers %q: the mesh has to replace what the agent sends, not to add to it", len(values), m.header)
	}
	name, ok := m.match(values[0])
	if !ok {
		return "", fmt.Errorf("the expression %q does not match the header %q, which is %q: change --auth on the principal", m.expr, m.header, clip(values[0]))
	}
	if err := CheckAgentName(name); err != nil {
		return "", fmt.Errorf("in the header %q, which is %q, by the expression %q: %w", m.header, clip(values[0]), m.expr, err)
	}
	return name, nil
}

// match returns the first group, or all that matched where there is no group.
func (m *Method) match(text string) (string, bool) {
	found := m.expr.FindStringSubmatch(text)
	switch {
	case found == nil:
		return "", false
	case len(found) > 1:
		return found[1], true
	case m.expr.String() == "":
		return text, true
	}
	return found[0], true
}
