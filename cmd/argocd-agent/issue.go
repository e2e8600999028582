package main

import (
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// issueSettings configure the certificates that the principal issues.
type issueSettings struct {
	enabled   bool
	namespace string
	names     []string
	lifetime  time.Duration
}

func (s *issueSettings) declare(f *flags) {
	f.add("issue-certificates", boolean(&s.enabled, true),
		"Issue and renew the certificates of the principal, renew those of agents, and let clusters join. Requires the CA key in "+
			"Secret argocd-agent-ca. If there are neither CA nor certificates, the principal creates them. It never changes Secrets "+
			"that it did not create.")
	f.add("pki-namespace", text(&s.namespace, "NAMESPACE", ""),
		"Namespace of the Secrets with the CA, the certificates of the principal and the join tokens. In a namespace of their own, "+
			"users and components that can read Secrets of Argo CD cannot read the CA key.").
		defaultText("the namespace of Argo CD")
	f.add("tls-server-names", list(&s.names, "NAMES"),
		"Comma-separated host names and addresses of the principal for the certificate that it issues to itself, in addition to "+
			"those of its Service and of the previous certificate.").defaultText("the names of its Service")
	f.add("agent-certificate-lifetime", duration(&s.lifetime, pki.ClientLifetime),
		"Lifetime of agent certificates. An agent renews its certificate after two thirds of it. An agent that is disconnected "+
			"for the last third must join again.")
}

const (
	minLifetime = 10 * time.Minute
	maxLifetime = 366 * 24 * time.Hour
)

func (s *issueSettings) check(f *flags) {
	if s.lifetime < minLifetime || s.lifetime > maxLifetime {
		f.failIf("agent-certificate-lifetime", fmt.Errorf("must be at least %s and at most %s", minLifetime, maxLifetime))
	}
	if s.namespace != "" {
		f.failIf("pki-namespace", dnsName(s.namespace, validation.IsDNS1123Label))
	}
	for _, name := range s.names {
		f.failIf("tls-server-names", checkHost(name))
	}
}

// issue configures the certificates that the principal issues. It issues none if certificates come from files or if the
// CA is in another Secret. If source is nil, it issues only the certificate of the resource proxy.
func (s *principalSettings) issue(cfg *principal.Config, source identity.Source, method *identity.Method) {
	if !s.issuing.enabled || s.cert != "" || s.caSecret != defaultCASecret {
		return
	}
	cfg.Issue = &issue.Config{Servers: map[string][]string{}, ClientLife: s.issuing.lifetime, Names: method.AgentFromCertificate}
	if source != nil {
		identity.AllowAnonymousJoin(cfg.TLS, source)
		names := append(serviceNames("argocd-agent-principal", cfg.Namespace), s.issuing.names...)
		if s.search.port != 0 {
			names = append(names, serviceNames("argocd-agent-search", cfg.Namespace)...)
		}
		if host := unbracket(s.listenHost); !net.ParseIP(host).IsUnspecified() {
			names = append(names, host)
		}
		cfg.Issue.Servers[s.secret] = unique(names)
	}
	if proxy := s.live.certs; s.live.resources && proxy.cert == "" && proxy.secret != s.secret {
		host, _, _ := net.SplitHostPort(s.live.address)
		cfg.Issue.Servers[proxy.secret] = unique(append(serviceNames("argocd-agent-resource-proxy", cfg.Namespace), host))
	}
}

// serviceNames returns the names of a Service and of this host.
func serviceNames(service, namespace string) []string {
	qualified := service + "." + namespace
	return []string{service, qualified, qualified + ".svc", qualified + ".svc.cluster.local", "localhost", "127.0.0.1"}
}

func unique(names []string) (list []string) {
	for _, name := range names {
		if name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
