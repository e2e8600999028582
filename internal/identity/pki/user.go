package pki

import (
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"time"
)

// User is a user of the hub for whom a resource proxy client certificate is issued.
type User struct {
	Name   string
	Groups []string
}

// A certificate for a user has a URI: argocd-agent:user?group=GROUP&name=NAME.
const (
	userScheme = "argocd-agent"
	userOpaque = "user"
)

// ProxyUser issues a resource proxy client certificate for a user. Its common name is the agent's.
func (h *Manager) ProxyUser(ctx context.Context, agent string, user User) (Issued, error) {
	return h.issue(ctx, agent, func(a *Authority, agent string, life time.Duration, now time.Time) (Pair, error) {
		t := proxyClient(agent, life, now)
		t.URIs = []*url.URL{{Scheme: userScheme, Opaque: userOpaque, RawQuery: url.Values{"name": {user.Name}, "group": user.Groups}.Encode()}}
		return a.issue(t, a.intermediates())
	})
}

// UserOf returns the user for whom the hub issued a resource proxy client certificate. The name is empty if it was not known.
// It returns false if the certificate is not for a user. The caller must have verified the certificate.
func UserOf(cert *x509.Certificate) (User, bool) {
	if !slices.Contains(cert.Subject.OrganizationalUnit, ProxyClientUnit) || len(cert.URIs) != 1 {
		return User{}, false
	}
	uri := cert.URIs[0]
	values, err := url.ParseQuery(uri.RawQuery)
	if err != nil || uri.Scheme != userScheme || uri.Opaque != userOpaque {
		return User{}, false
	}
	return User{Name: values.Get("name"), Groups: values["group"]}, true
}
