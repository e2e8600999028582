package main

import (
	"net"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// issueSettings say what the principal does about certificates itself.
type issueSettings struct {
	on    bool
	names []string
	life  time.Duration
}

func (s *issueSettings) declare(f *flags) {
	f.add("issue-certificates", onOff(&s.on, true),
		"The principal issues and renews its own certificates, renews agents' and lets clusters join, if the key of the CA is in Secret argocd-agent-ca; "+
			"where there are neither CA nor certificates yet, it makes them. Secrets that somebody else has made are never written. Turn it off to do all of that elsewhere.")
	f.add("tls-server-names", list(&s.names, "NAMES"),
		"Host names and addresses by which agents reach the principal, separated by commas, for the certificate that it issues to itself; "+
			"those of its Service are in it anyway, and what was in the one before stays.")
	f.defaultText("tls-server-names", "those of its Service")
	f.add("agent-certificate-life", duration(&s.life, pki.ClientLifetime),
		"How long certificates of agents are good. They are renewed after two thirds of it: the last third is how long an agent may be away.")
}

const (
	leastLife = 10 * time.Minute
	mostLife  = 366 * 24 * time.Hour
)

func (s *issueSettings) check(f *flags, bad *validationErrors) {
	if s.life < leastLife || s.life > mostLife {
		bad.add("%s %s: give at least %s and at most %s", f.name("agent-certificate-life"), s.life, leastLife, mostLife)
	}
	for _, name := range s.names {
		if err := checkHost(name); err != nil {
			bad.add("%s %q: %w", f.name("tls-server-names"), name, err)
		}
	}
}

// issue sets up what the principal does about certificates: nothing where they
// come from files, or its CA is not where we keep ours. Where its own comes from
// elsewhere (the source is nil), it is only about those of the resource proxy.
func (s *principalSettings) issue(cfg *principal.Config, source identity.Source, method *identity.Method) {
	if !s.issuing.on || s.cert != "" || s.caSecret != usualCASecret {
		return
	}
	cfg.Issue = &issue.Config{Servers: map[string][]string{}, ClientLife: s.issuing.life, Names: method.AgentFromCertificate}
	if source != nil {
		identity.AllowAnonymousJoin(cfg.TLS, source)
		names := append(serviceNames("argocd-agent-principal", cfg.Namespace), s.issuing.names...)
		if s.listenHost != "" && !net.ParseIP(strings.Trim(s.listenHost, "[]")).IsUnspecified() {
			names = append(names, strings.Trim(s.listenHost, "[]"))
		}
		cfg.Issue.Servers[s.secret] = unique(names)
	}
	if proxy := s.live.certs; s.live.resources && proxy.cert == "" && proxy.secret != s.secret {
		host, _, _ := net.SplitHostPort(s.live.address)
		cfg.Issue.Servers[proxy.secret] = unique(append(serviceNames("argocd-agent-resource-proxy", cfg.Namespace), host))
	}
}

// serviceNames are those of a Service, and of this host.
func serviceNames(service, namespace string) []string {
	inside := service + "." + namespace
	return []string{service, inside, inside + ".svc", inside + ".svc.cluster.local", "localhost", "127.0.0.1"}
}

func unique(words []string) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, word := range words {
		if !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	}
	return out
}

// renewal says which Secrets the agent keeps up itself.
func (s *agentSettings) renewal(cfg *agent.Config) {
	if s.cert != "" {
		cfg.Log.Info("Certificate comes from files, the agent does not renew it", "file", s.cert)
		return
	}
	cfg.Certificates = &agent.Certificates{Client: s.secret, Authority: s.caSecret, Token: s.joinSecret}
}
