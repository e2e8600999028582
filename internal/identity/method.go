package identity

import (
	"cmp"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Method finds the agent's name in a verified certificate or header. The setting --auth has one of these forms:
//
//	mtls:subject:<expression>   the client certificate's subject
//	mtls:<expression>           the same
//	mtls:uri:<expression>       a URI in its subject alternative names
//	header:<name>:<expression>  a header that a mesh adds
//
// The expression is a Go regular expression. It must be anchored with ^ and $, because the owner of a certificate may
// choose other parts of it. It is matched against
//
//   - the whole subject in the form of RFC 2253, such as CN=agent-a,OU=fleet,O=example
//   - each URI, such as spiffe://example/ns/argocd/sa/agent-a. If several match, they must have the same name.
//   - the header's value. There must be exactly one. Of X-Forwarded-Client-Cert, the URIs of its only element.
//
// The first group in parentheses is the name. Without a group, the name is the subject's common name or, with uri and
// header, the whole value. An empty expression matches everything. The expression CN=([^,]+) of a subject is the common
// name. The name must be an RFC 1123 label.
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

// ParseMethod parses the setting --auth.
func ParseMethod(setting string) (*Method, error) {
	m := &Method{text: setting}
	kind, rest, _ := strings.Cut(setting, ":")
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
			return nil, fmt.Errorf("authentication method %q: invalid header name %q: use header:<name>:<expression>", setting, m.header)
		}
	case "userpass":
		return nil, fmt.Errorf("authentication method %q: user names and passwords are not supported: use client certificates and mtls:<expression>", setting)
	default:
		return nil, fmt.Errorf("unknown authentication method %q: use mtls:subject:<expression>, mtls:uri:<expression>, mtls:<expression> or header:<name>:<expression>", setting)
	}
	if m.source == fromSubject && expr == commonName {
		expr = anchoredCommonName
	}
	var err error
	if m.expr, err = regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("authentication method %q: %w", setting, err)
	}
	if !anchored(expr) {
		return nil, fmt.Errorf("authentication method %q: the expression is not anchored, so a client could choose a part that matches: "+
			"begin it with ^ and end it with $, for example %s", setting, anchoredExamples[m.source])
	}
	return m, nil
}

// commonName is the expression of existing installations. It is replaced by anchoredCommonName. Only a serial number comes
// before the common name, and checkUnambiguous rejects attributes that contain another one.
const (
	commonName         = `CN=([^,]+)`
	anchoredCommonName = `(?s)^(?:SERIALNUMBER=[^,]*,)?CN=([^,]+)(?:,.*)?$`
)

var anchoredExamples = map[source]string{
	fromSubject: `mtls:subject:^CN=([^,]+),OU=fleet$`,
	fromURI:     `mtls:uri:^spiffe://example\.org/agent/([^/]+)$`,
	fromHeader:  `header:x-agent:^([a-z0-9-]+)$`,
}

// anchored reports whether an expression matches only whole values. An empty expression matches everything.
func anchored(expr string) bool {
	re, err := syntax.Parse(expr, syntax.Perl)
	return err == nil && (expr == "" || anchoredAt(re, syntax.OpBeginText) && anchoredAt(re, syntax.OpEndText))
}

// anchoredAt reports whether every match includes this end of the value.
func anchoredAt(re *syntax.Regexp, end syntax.Op) bool {
	switch re.Op {
	case end:
		return true
	case syntax.OpCapture:
		return anchoredAt(re.Sub[0], end)
	case syntax.OpConcat:
		at := 0
		if end == syntax.OpEndText {
			at = len(re.Sub) - 1
		}
		return anchoredAt(re.Sub[at], end)
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !anchoredAt(sub, end) })
	}
	return false
}

func isHeaderName(s string) bool {
	return s != "" && !strings.HasPrefix(s, "grpc-") && !strings.HasSuffix(s, "-bin") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// String returns the method as it was written.
func (m *Method) String() string { return m.text }

// Plaintext reports whether the method relies on a header of a mesh instead of a certificate.
func (m *Method) Plaintext() bool { return m.source == fromHeader }

// ByURI reports whether the name is found in a URI of a certificate.
func (m *Method) ByURI() bool { return m.source == fromURI }

// AgentFromCertificate returns the agent of a verified certificate.
func (m *Method) AgentFromCertificate(cert *x509.Certificate) (string, error) {
	if m.source == fromURI {
		var uris []string
		for _, uri := range cert.URIs {
			uris = append(uris, uri.String())
		}
		return m.agent("the certificate's URIs", uris, "")
	}
	subject := cert.Subject.String()
	if err := checkUnambiguous(cert); err != nil {
		return "", fmt.Errorf("subject %q: %w", clip(subject), err)
	}
	name := ""
	if m.expr.NumSubexp() == 0 {
		name = cert.Subject.CommonName
	}
	return m.agent("the certificate's subject", []string{subject}, name)
}

// agent returns the name that the expression finds. All values that match must have the same name. If name is not empty,
// the agent has that name.
func (m *Method) agent(where string, values []string, name string) (string, error) {
	found, matched := "", false
	for _, value := range values {
		one, ok := m.match(value)
		switch {
		case !ok || matched && one == found:
		case matched:
			return "", fmt.Errorf("several of %s match the expression %q and name different agents, %q and %q", where, m.expr, clip(found), clip(one))
		default:
			found, matched = one, true
		}
	}
	shown := clip(strings.Join(values, ", "))
	if !matched {
		return "", fmt.Errorf("the expression %q does not match %s (%q): change --auth on the principal, or issue the agent another certificate", m.expr, where, shown)
	}
	found = cmp.Or(name, found)
	if err := pki.CheckAgentName(found); err != nil {
		return "", fmt.Errorf("match expression %q with %s (%q): %w", m.expr, where, shown, err)
	}
	return found, nil
}

// checkUnambiguous rejects subjects in which one attribute looks like another. A user that may choose another attribute
// of a certificate must not be able to choose the name.
func checkUnambiguous(cert *x509.Certificate) error {
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	names := 0
	for _, attribute := range cert.Subject.Names {
		if attribute.Type.Equal(commonName) {
			names++
		}
		if value, ok := attribute.Value.(string); ok && strings.Contains(strings.ToUpper(value), "CN=") {
			return errors.New("an attribute contains \"CN=\" and could be mistaken for a common name")
		}
	}
	if names > 1 {
		return errors.New("it has several common names")
	}
	return nil
}

// agentFromHeader returns the agent that a mesh has authenticated.
func (m *Method) agentFromHeader(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", fmt.Errorf("the request has no header %q: check that the mesh adds it and that the agent connects through the mesh", m.header)
	case 1:
	default: // the agent may have sent one of them
		return "", fmt.Errorf("the request has %d headers %q: the mesh must replace the agent's header, not add another", len(values), m.header)
	}
	if m.header == forwardedCert {
		uris, err := forwardedURIs(values[0])
		if err != nil {
			return "", err
		}
		return m.agent(fmt.Sprintf("the URIs of the header %q", m.header), uris, "")
	}
	return m.agent(fmt.Sprintf("the header %q", m.header), values, "")
}

// forwardedCert is the header with the client certificate that Envoy has verified. An element has pairs KEY=VALUE that are
// separated by semicolons. Each proxy on the way may append an element, also to one that the client has sent.
const forwardedCert = "x-forwarded-client-cert"

// forwardedURIs returns the URIs in the only element of the header. With several elements it cannot know which one the
// mesh has verified.
func forwardedURIs(value string) (uris []string, err error) {
	if n := len(splitUnquoted(value, ',')); n != 1 {
		return nil, fmt.Errorf("the header %q has %d elements, and a client may have sent one of them: "+
			"configure the proxy in front of the principal to replace the header (SANITIZE_SET), not to append to it (APPEND_FORWARD)", forwardedCert, n)
	}
	for _, pair := range splitUnquoted(value, ';') {
		if key, uri, _ := strings.Cut(pair, "="); strings.EqualFold(strings.TrimSpace(key), "URI") {
			uris = append(uris, strings.Trim(uri, `"`))
		}
	}
	return uris, nil
}

// splitUnquoted splits at a separator that is not within quotes. A backslash escapes a quote.
func splitUnquoted(s string, separator byte) (parts []string) {
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// match returns the first group or, if there is none, the whole value.
func (m *Method) match(s string) (string, bool) {
	found := m.expr.FindStringSubmatch(s)
	switch {
	case found == nil:
		return "", false
	case len(found) > 1:
		return found[1], true
	case m.expr.String() == "":
		return s, true
	}
	return found[0], true
}

// clip bounds text that a peer has sent.
func clip(s string) string { return text.Truncate(s, 256) }
