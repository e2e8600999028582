package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func TestMethod_FindsTheNameInTheCertificate(t *testing.T) {
	ca := newAuthority(t, "ca")
	subject := func(name pkix.Name) *x509.Certificate {
		c := template("")
		c.Subject = name
		return c
	}
	attribute := func(id []int, value string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier(id), Value: value}
	}
	fleet := subject(pkix.Name{CommonName: "agent-a", OrganizationalUnit: []string{"fleet"}, Organization: []string{"example"}})
	for _, test := range []struct {
		title, method string
		cert          *x509.Certificate
		name, problem string
	}{
		{"first group of the subject", `mtls:subject:CN=([^,]+)`, fleet, "agent-a", ""},
		{"subject is the default", `mtls:CN=([^,]+)`, fleet, "agent-a", ""},
		{"group elsewhere in the subject", `mtls:^CN=[^,]+,OU=([a-z]+),O=example$`, fleet, "fleet", ""},
		{"second group does not matter", `mtls:^CN=agent-([^,]+),OU=(.+)$`, fleet, "a", ""},
		{"no group: the common name", `mtls:subject:^.*,O=example$`, fleet, "agent-a", ""},
		{"no expression: the common name", `mtls:`, fleet, "agent-a", ""},
		{"no method's details at all", `mtls`, fleet, "agent-a", ""},
		{"does not match", `mtls:subject:^CN=(edge-[^,]+)$`, fleet, "", `"^CN=(edge-[^,]+)$" does not match the certificate's subject ("CN=agent-a,OU=fleet,O=example")`},
		{"group that took no part", `mtls:^CN=agent-a,.*$|^(x)$`, fleet, "", `invalid agent name ""`},
		{"name is no label", `mtls:CN=([^,]+)`, subject(pkix.Name{CommonName: "Agent_A"}), "", `invalid agent name "Agent_A"`},
		{"name with a dot", `mtls:CN=([^,]+)`, subject(pkix.Name{CommonName: "a.b"}), "", `invalid agent name "a.b"`},
		{"name too long", `mtls:CN=([^,]+)`, subject(pkix.Name{CommonName: strings.Repeat("a", 64)}), "", "at most 63"},
		{"common name in disguise", `mtls:CN=([^,]+)`, subject(pkix.Name{CommonName: "agent-a", OrganizationalUnit: []string{"CN=agent-b"}}), "", "could be mistaken for a common name"},
		{"serial number before the name", `mtls:CN=([^,]+)`, subject(pkix.Name{CommonName: "agent-a", SerialNumber: "7"}), "agent-a", ""},
		{"two common names", `mtls:CN=([^,]+)`, subject(pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
			attribute([]int{2, 5, 4, 3}, "agent-a"), attribute([]int{2, 5, 4, 3}, "agent-b")}}), "", "several common names"},
		{"comma in an attribute is not a separator", `mtls:^CN=([^,\\]+)$`, subject(pkix.Name{CommonName: "agent-a", Organization: []string{"x,y"}}), "", "does not match"},

		{"URI's group", `mtls:uri:^spiffe://[^/]+/ns/[^/]+/sa/(.+)$`, withURIs(t, "spiffe://example/ns/argocd/sa/agent-a"), "agent-a", ""},
		{"URI: whole match", `mtls:uri:^agent-[a-z]+$`, withURIs(t, "agent-a"), "agent-a", ""},
		{"one of several URIs", `mtls:uri:^spiffe://x/(.+)$`, withURIs(t, "https://example/agent-b", "spiffe://x/agent-a"), "agent-a", ""},
		{"URIs that agree", `mtls:uri:^.*/(agent-.)$`, withURIs(t, "spiffe://x/agent-a", "spiffe://y/agent-a"), "agent-a", ""},
		{"URIs that contradict", `mtls:uri:^.*/(agent-.)$`, withURIs(t, "spiffe://x/agent-a", "spiffe://y/agent-b"), "", `different agents, "agent-a" and "agent-b"`},
		{"no URI", `mtls:uri:^(.+)$`, withURIs(t), "", "does not match"},
		{"URI does not match", `mtls:uri:^spiffe://y/(.+)$`, withURIs(t, "spiffe://x/agent-a"), "", `does not match the certificate's URIs ("spiffe://x/agent-a")`},
		{"URI's name is no label", `mtls:uri:^spiffe://x/(.+)$`, withURIs(t, "spiffe://x/a/b"), "", "invalid agent name"},
	} {
		t.Run(test.title, func(t *testing.T) {
			m, err := ParseMethod(test.method)
			must(t, err)
			cert, _ := ca.sign(test.cert)
			a := &Authenticator{Method: m}
			p, err := a.Authenticate(overTLS(cert, ca.cert))
			switch {
			case test.problem == "" && err != nil:
				t.Fatal(err)
			case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
				t.Fatalf("error %v instead of one with %q", err, test.problem)
			case p.Agent != test.name:
				t.Fatalf("name %q instead of %q", p.Agent, test.name)
			case err == nil && (p.Fingerprint != Fingerprint(cert) || !p.NotAfter.Equal(cert.NotAfter)):
				t.Fatalf("peer %+v", p)
			}
		})
	}
}

func TestParseMethod_RejectsInvalid(t *testing.T) {
	for text, problem := range map[string]string{
		"":                   "unknown authentication method",
		"token:abc":          "unknown authentication method",
		"mtls:subject:(":     "missing closing",
		"header":             "invalid header name",
		"header:a b:x":       "invalid header name",
		"header:grpc-x:(.+)": "invalid header name",

		"mtls:OU=([^,]+)":                    "not anchored",
		"mtls:^OU=([^,]+)":                   "not anchored",
		"mtls:uri:spiffe://x/agent/([^/]+)$": "not anchored",
		"mtls:uri:^a$|b$":                    "not anchored",
		"mtls:uri:(?m)^a$":                   "not anchored",
		"header:x-agent:(.+)":                "not anchored",
	} {
		if _, err := ParseMethod(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: error %v instead of one with %q", text, err, problem)
		}
	}
}

func TestAuthenticate_TrustsHeadersOnlyFromTheMesh(t *testing.T) {
	const header = "x-forwarded-client-cert"
	value := "By=spiffe://x/ns/hub/sa/principal;URI=spiffe://x/ns/argocd/sa/agent-a"
	for _, test := range []struct {
		title, from   string
		gateways      bool // are listed
		values        []string
		name, problem string
	}{
		{"sidecar", "127.0.0.6:4711", false, []string{value}, "agent-a", ""},
		{"sidecar over IPv6", "[::1]:4711", false, []string{value}, "agent-a", ""},
		{"waypoint", "10.1.2.3:4711", true, []string{value}, "agent-a", ""},
		{"anybody", "10.9.2.3:4711", true, []string{value}, "", "a header from 10.9.2.3:4711 is not trusted"},
		{"gateway that is not listed", "10.1.2.3:4711", false, []string{value}, "", "a header from 10.1.2.3:4711 is not trusted"},
		{"sidecar, but gateways are listed", "127.0.0.1:1", true, []string{value}, "", "is not trusted"},
		{"no header", "127.0.0.1:1", false, nil, "", `no header "x-forwarded-client-cert"`},
		{"two headers", "127.0.0.1:1", false, []string{value, value}, "", "2 headers"},
		{"does not match", "127.0.0.1:1", false, []string{"URI=spiffe://y/z"}, "", `does not match the URIs of the header "x-forwarded-client-cert" ("spiffe://y/z")`},
		{"no label", "127.0.0.1:1", false, []string{"URI=spiffe://x/ns/argocd/sa/A"}, "", "invalid agent name"},
	} {
		t.Run(test.title, func(t *testing.T) {
			m, err := ParseMethod(`header:X-Forwarded-Client-Cert:^spiffe://x/ns/[^/]+/sa/(.+)$`)
			must(t, err)
			a := &Authenticator{Method: m}
			if test.gateways {
				a.Trusted = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
			}
			headers := http.Header{http.CanonicalHeaderKey(header): test.values}
			p, err := a.Authenticate(Client{RemoteAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.from)), Header: headers.Values})
			if test.problem == "" && (err != nil || p.Agent != test.name) {
				t.Fatalf("got %+v, %v", p, err)
			}
			if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Fatalf("error %v instead of one with %q", err, test.problem)
			}
		})
	}
}

// A proxy that appends to the header of the client adds an element. The client chose the other one.
func TestMethod_RefusesHeaderWithSeveralElements(t *testing.T) {
	m, err := ParseMethod(`header:x-forwarded-client-cert:^spiffe://cluster\.local/ns/argocd/sa/([a-z0-9-]+)$`)
	must(t, err)
	const by = "By=spiffe://cluster.local/ns/argocd/sa/principal;Hash=00;"
	for value, want := range map[string]string{
		by + "URI=spiffe://cluster.local/ns/argocd/sa/agent-a":                                                                "agent-a",
		by + `Subject="O=a,b;URI=spiffe://cluster.local/ns/argocd/sa/victim";URI=spiffe://cluster.local/ns/argocd/sa/agent-a`: "agent-a",
		by + `Subject="x\",URI=spiffe://cluster.local/ns/argocd/sa/victim";URI=spiffe://cluster.local/ns/argocd/sa/agent-a`:   "agent-a",
		by + "URI=spiffe://cluster.local/ns/argocd/sa/victim," + by + "URI=spiffe://cluster.local/ns/argocd/sa/attacker":      "",
		by + "URI=spiffe://cluster.local/ns/argocd/sa/attacker," + by + "URI=spiffe://cluster.local/ns/argocd/sa/victim":      "",
		by + "URI=spiffe://cluster.local/ns/argocd/sa/victim;URI=spiffe://cluster.local/ns/argocd/sa/attacker":                "",
		by + `Subject="CN=x";DNS=spiffe://cluster.local/ns/argocd/sa/victim`:                                                  "",
		by + "URI=spiffe://evil/spiffe://cluster.local/ns/argocd/sa/victim":                                                   "",
	} {
		if got, err := m.agentFromHeader([]string{value}); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}

func TestAuthenticate_MethodMustFitTheTransport(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, _ := ca.sign(template("agent-a"))
	byHeader, err := ParseMethod("header:x-agent:^(.+)$")
	must(t, err)
	byCertificate, err := ParseMethod("mtls:")
	must(t, err)
	if _, err := (&Authenticator{Method: byHeader}).Authenticate(overTLS(cert, ca.cert)); err == nil {
		t.Error("a header is trusted on an encrypted connection")
	}
	plain := Client{RemoteAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	if _, err := (&Authenticator{Method: byCertificate}).Authenticate(plain); err == nil {
		t.Error("plaintext has an identity")
	}
	unverified := Client{RemoteAddr: &net.TCPAddr{}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
	if _, err := (&Authenticator{Method: byCertificate}).Authenticate(unverified); err == nil {
		t.Error("an unverified certificate has an identity")
	}
}

func TestAuthenticate_RefusesRevokedCertificateOnOpenConnection(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, _ := ca.sign(template("agent-a"))
	m, err := ParseMethod("mtls:")
	must(t, err)
	a := &Authenticator{Method: m, Revoked: &Revocations{}}
	if _, err := a.Authenticate(overTLS(cert, ca.cert)); err != nil {
		t.Fatal(err)
	}
	_, err = a.Revoked.Set([]string{Fingerprint(cert)})
	must(t, err)
	if _, err := a.Authenticate(overTLS(cert, ca.cert)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("error %v", err)
	}
}

// Another CA may have issued certificates of a deleted agent that are not recorded.
func TestAuthenticate_RefusesCertificateFromBeforeTheDeletion(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, _ := ca.sign(template("agent-a"))
	m, err := ParseMethod("mtls:")
	must(t, err)
	a := &Authenticator{Method: m, Revoked: &Revocations{}}
	issued := pki.IssuedAt(cert)
	for agent, deleted := range map[string]time.Time{"agent-a": issued, "agent-b": issued.Add(time.Hour)} {
		a.Revoked.SetBefore(map[string]time.Time{agent: deleted})
		if _, err := a.Authenticate(overTLS(cert, ca.cert)); err != nil {
			t.Errorf("%s deleted at %s: %v", agent, deleted, err)
		}
	}
	a.Revoked.SetBefore(map[string]time.Time{"agent-a": issued.Add(time.Second)})
	if _, err := a.Authenticate(overTLS(cert, ca.cert)); err == nil || !strings.Contains(err.Error(), "was issued before agent agent-a was deleted") {
		t.Errorf("error %v", err)
	}
}

// A connection may be older than the expiry of its certificate. It must not renew the certificate then.
func TestAuthenticate_RefusesExpiredCertificateOnOpenConnection(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, _ := ca.sign(template("agent-a"))
	m, err := ParseMethod("mtls:")
	must(t, err)
	for after, problem := range map[time.Duration]string{0: "", time.Nanosecond: "expired on"} {
		a := &Authenticator{Method: m, Now: func() time.Time { return cert.NotAfter.Add(after) }}
		if _, err := a.Authenticate(overTLS(cert, ca.cert)); (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s after the end: %v", after, err)
		}
	}
}

// overTLS is a client with this certificate.
func overTLS(chain ...*x509.Certificate) Client {
	return Client{
		RemoteAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)},
		TLS:        &tls.ConnectionState{PeerCertificates: chain[:1], VerifiedChains: [][]*x509.Certificate{chain}},
	}
}
