package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestProxyUser_CertificateNamesUser(t *testing.T) {
	hub := &Manager{Secrets: &FakeSecrets{}}
	if _, _, err := hub.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []User{{Name: "alice", Groups: []string{"b", "a"}}, {Name: "ü &?=/\n:" + strings.Repeat("x", 300), Groups: []string{"g?name=root"}}, {Name: "no groups"}, {}} {
		issued, err := hub.ProxyUser(t.Context(), "w1", want)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := Certificates(issued.Cert)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := UserOf(certs[0])
		if !ok || !reflect.DeepEqual(got, want) || certs[0].Subject.CommonName != "w1" {
			t.Errorf("%+v %v instead of %+v", got, ok, want)
		}
	}
}

func TestUserOf_OnlyOfResourceProxyClients(t *testing.T) {
	uri := func(s string) []*url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	const good = "argocd-agent:user?name=alice"
	for title, c := range map[string]struct {
		unit string
		uris []*url.URL
		ok   bool
	}{
		"user":          {ProxyClientUnit, uri(good), true},
		"of an agent":   {"agents", uri(good), false},
		"no URI":        {ProxyClientUnit, nil, false},
		"two URIs":      {ProxyClientUnit, append(uri(good), uri(good)...), false},
		"other scheme":  {ProxyClientUnit, uri("spiffe:user?name=alice"), false},
		"other kind":    {ProxyClientUnit, uri("argocd-agent:x?name=alice"), false},
		"with a host":   {ProxyClientUnit, uri("argocd-agent://user?name=alice"), false},
		"wrong escapes": {ProxyClientUnit, []*url.URL{{Scheme: "argocd-agent", Opaque: "user", RawQuery: "name=%zz"}}, false},
	} {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "w1", OrganizationalUnit: []string{c.unit}}, URIs: c.uris}
		if user, ok := UserOf(cert); ok != c.ok || ok && user.Name != "alice" {
			t.Errorf("%s: %+v %v", title, user, ok)
		}
	}
}
