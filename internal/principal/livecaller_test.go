package principal

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func TestAnAgentsOwnCertificateDoesNotOpenAnothersCluster(t *testing.T) {
	d := newDesk(t)
	d.see(agent("a", 1, "managed"))
	d.see(agent("b", 2, "managed"))
	for title, test := range map[string]struct {
		auth, name, unit string
		want, wrong      string
	}{
		"by its name":                    {auth: "mtls:CN=([^,]+)", name: "a", want: "a"},
		"for Argo CD":                    {auth: "mtls:CN=([^,]+)", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"another's name":                 {auth: "mtls:OU=([^,]+)", name: "b", unit: "a", wrong: "is agent a's own"},
		"its own name":                   {auth: "mtls:OU=([^,]+)", name: "a", unit: "a", want: "a"},
		"for Argo CD, named by the unit": {auth: "mtls:OU=([^,]+)", name: "b", unit: pki.ProxyClientUnit, want: "b"},
		"no agent's":                     {auth: "mtls:OU=([^,]+)", name: "b", unit: "people", want: "b"},
		"unknown":                        {auth: "mtls:CN=([^,]+)", name: "c", wrong: `"c"`},
	} {
		method, err := identity.ParseMethod(test.auth)
		if err != nil {
			t.Fatal(err)
		}
		p := &principal{registry: d.registry}
		p.cfg.Live.Names = method.OfCertificate
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: test.name}}
		if test.unit != "" {
			cert.Subject.OrganizationalUnit = []string{test.unit}
		}
		got, err := (&live{p: p}).caller(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %q, %v", title, got, err)
		}
	}
}
