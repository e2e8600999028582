package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// secret returns a Secret, or nil and a finding.
func (e *checkRun) secret(ctx context.Context, c *cluster, name, check, remedy string) *pki.Secret {
	s, err := secrets{c}.Get(ctx, name)
	if err != nil {
		e.skipped(check, err)
	} else if s == nil {
		e.problem(check, remedy, "Secret %s not found", name)
	}
	return s
}

// trustedCAs checks the CA bundle of a side and returns it.
func (e *checkRun) trustedCAs(ctx context.Context, c *cluster, missing string) []*x509.Certificate {
	s := e.secret(ctx, c, pki.AuthoritySecret, "CA", missing)
	if s == nil {
		return nil
	}
	a, err := pki.ReadAuthority(s.Data)
	if err != nil {
		e.problem("CA", "put the CA certificate as PEM into "+pki.BundleKey+" of the Secret", "Secret %s: %v", pki.AuthoritySecret, err)
		return nil
	}
	left := a.Cert.NotAfter.Sub(e.program.Now())
	switch {
	case left <= 0:
		e.problem("CA", "argocd-agentctl pki rotate", "CA %q expired %s", a.Cert.Subject, date(a.Cert.NotAfter))
	case left < 90*24*time.Hour:
		e.warning("CA", "argocd-agentctl pki rotate", "CA %q expires in %s", a.Cert.Subject, span(left))
	default:
		e.ok("CA", "%s, valid for %s", a.Cert.Subject, span(left))
	}
	if a.Rotating() {
		e.note("CA", "a rotation is in progress. If every agent has a new certificate, run `argocd-agentctl pki rotate --finish`")
	}
	return a.Bundle
}

// certificate checks a certificate Secret: key pair, validity period and trusted CA.
func (e *checkRun) certificate(ctx context.Context, c *cluster, name, renew string, usage x509.ExtKeyUsage, bundle []*x509.Certificate) *x509.Certificate {
	const check = "certificate"
	s := e.secret(ctx, c, name, check, renew)
	if s == nil {
		return nil
	}
	_, err := tls.X509KeyPair(s.Data[pki.CertKey], s.Data[pki.KeyKey])
	var chain []*x509.Certificate
	if err == nil {
		chain, err = pki.Certificates(s.Data[pki.CertKey])
	}
	if err != nil {
		e.problem(check, renew, "Secret %s: %v", name, err)
		return nil
	}
	leaf, now := chain[0], e.program.Now()
	left := leaf.NotAfter.Sub(now)
	switch problem := verify(chain, bundle, usage, now); {
	case left <= 0:
		e.problem(check, renew, "%s (Secret %s) expired %s ago", leaf.Subject, name, span(-left))
	case now.Before(leaf.NotBefore):
		e.problem(check, "synchronize the clocks: the issuer's clock is ahead", "%s (Secret %s) is not valid before %s", leaf.Subject, name, date(leaf.NotBefore))
	case len(bundle) > 0 && problem != nil:
		e.problem(check, renew, "%s (Secret %s) is not signed by a CA in Secret %s: %v", leaf.Subject, name, pki.AuthoritySecret, problem)
	case now.After(pki.RenewAt(leaf).Add(leaf.NotAfter.Sub(pki.RenewAt(leaf)) / 2)):
		e.warning(check, renew+"; check the log for the failed renewal", "%s (Secret %s) expires in %s and was not renewed", leaf.Subject, name, span(left))
	default:
		e.ok(check, "%s (Secret %s), valid for %s", leaf.Subject, name, span(left))
	}
	return leaf
}

func verify(chain, bundle []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range bundle {
		roots.AddCert(cert)
	}
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// names checks that a server certificate is valid for a host.
func (e *checkRun) names(leaf *x509.Certificate, host, reissue string) {
	if leaf == nil || host == "" {
		return
	}
	if err := leaf.VerifyHostname(host); err != nil {
		info := pki.Describe(leaf)
		e.problem("certificate", reissue, "%s is valid for %s, not for %s", leaf.Subject, strings.Join(info.Names, ", "), host)
	}
}

// sameAuthority checks that both sides trust a common CA.
func (e *checkRun) sameAuthority(hub, spoke []*x509.Certificate) {
	if len(hub) == 0 || len(spoke) == 0 {
		return
	}
	for _, a := range hub {
		if slices.ContainsFunc(spoke, a.Equal) {
			e.ok("CA", "both sides trust %s", a.Subject)
			return
		}
	}
	e.problem("CA", "argocd-agentctl pki propagate; then issue a certificate for the agent: argocd-agentctl agent join-token, or pki issue agent --upsert",
		"the workload cluster trusts %s, the hub trusts %s", subjects(spoke), subjects(hub))
}

func subjects(certs []*x509.Certificate) string {
	var names []string
	for _, cert := range certs {
		names = append(names, fmt.Sprintf("%q", cert.Subject))
	}
	return strings.Join(names, ", ")
}
