package main

import (
	"context"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// principalSettings are what a user can say about a principal.
type principalSettings struct {
	clusterSettings
	observeSettings
	tlsSettings
	certificateSettings

	allowedNamespaces []string
	byDestination     bool
	selector          string
	shareRepositories bool
	syncTrust         bool
	required          bool
	namespaceCreate   bool
	namespacePattern  string
	namespaceLabels   map[string]string
	live              principalLive
	replica           replicaSettings
	shared            principalShared
	listenHost        string
	listenPort        int
	keepAliveLeast    time.Duration
	webSocket         bool
	auth              string
	plaintext         bool
	issuing           issueSettings
	spiffe            spiffeSettings
}

const principalPrefix = "ARGOCD_PRINCIPAL_"

func (p *program) principalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "principal",
		Short: "Run on the hub, beside Argo CD's API server",
		Long: `Runs the principal: the hub's end of every agent's connection.

Agents dial it and prove who they are, usually with a client certificate. For each of them the
principal publishes the Applications, projects and repositories that are meant for it, and writes
what the agent reports into the hub's Applications, where Argo CD's UI, API and CLI find it. Argo CD
itself needs no application controller on the hub.

An Application belongs to the agent whose namespace it is in or, with --destination-based-mapping,
to the agent that its destination names.`,
		Example: `  # In a pod of Argo CD's namespace, with the Secrets argocd-agent-principal-tls and argocd-agent-ca:
  argocd-agent principal

  # From a shell, with certificates from files, and namespaces created for new agents:
  argocd-agent principal --kubeconfig hub.yaml --namespace argocd \
    --tls-cert principal.crt --tls-key principal.key --root-ca-path ca.crt \
    --namespace-create-enable --log-level debug`,
		Args: noArguments,
	}
	var s principalSettings
	f := newFlags(cmd.Flags(), principalPrefix)
	s.declare(f)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { f.help(cmd.OutOrStdout(), cmd) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		warnings, err := read(f, p.env, s.check)
		if err != nil {
			return err
		}
		return p.runPrincipal(cmd.Context(), &s, warnings)
	}
	return cmd
}

func (s *principalSettings) declare(f *flags) {
	f.heading("Cluster")
	s.clusterSettings.declare(f)

	f.heading("What is replicated")
	f.add("destination-based-mapping", onOff(&s.byDestination, false),
		"An Application belongs to the agent that its destination names, in whatever namespace it is; else to the agent whose namespace it is in.")
	f.add("allowed-namespaces", list(&s.allowedNamespaces, "PATTERNS"),
		"Namespaces of the hub whose Applications are replicated: globs or /regular expressions/, separated by commas.")
	f.defaultText("allowed-namespaces", "the agents' own namespaces or, in destination mapping, Argo CD's")
	f.add("label-selector", text(&s.selector, "SELECTOR", ""),
		"Only objects whose labels match are replicated, such as team=web,tier!=test.")
	f.defaultText("label-selector", "everything")
	f.add("share-unscoped-repositories", onOff(&s.shareRepositories, false),
		"Repositories and credentials that belong to no project go to every managed agent; else they stay on the hub.")
	f.add("sync-repository-trust", onOff(&s.syncTrust, false),
		"The hub's TLS certificates and SSH host keys of Git servers go to managed agents too.")

	f.heading("Agents and their namespaces")
	f.add("require-registration", onOff(&s.required, false),
		"An agent without an Agent object is refused; else its first connection makes one.")
	f.add("namespace-create-enable", onOff(&s.namespaceCreate, false),
		"An agent's namespace is created when it is missing.")
	f.add("namespace-create-pattern", text(&s.namespacePattern, "REGEX", ""),
		"Only namespaces whose whole name matches are created.")
	f.defaultText("namespace-create-pattern", "any")
	f.add("namespace-create-labels", pairs(&s.namespaceLabels, "KEY=VALUE,…"),
		"Labels of the namespaces that are created.")

	f.heading("Connection")
	f.add("listen-host", text(&s.listenHost, "HOST", ""),
		"Address to listen on, for agents and for live access.")
	f.defaultText("listen-host", "all")
	f.add("listen-port", port(&s.listenPort, 8443), "Port to listen on for agents.")
	f.add("keepalive-min-interval", duration(&s.keepAliveLeast, 10*time.Second),
		"An agent that asks for signs of life more often than this is sent away.")

	f.add("enable-websocket", onOff(&s.webSocket, false),
		"Let agents connect by WebSocket too, on the same port at /argocd-agent, with or without TLS around it: behind what ends TLS or lets only HTTP/1.1 through. Inside, each agent shows its certificate as ever.")

	f.heading("Identity and TLS")
	f.add("auth", text(&s.auth, "METHOD", "mtls:CN=([^,]+)"),
		"How an agent is recognised: mtls:REGEX or mtls:subject:REGEX reads its name off the subject of its certificate, mtls:uri:REGEX off a URI in it, "+
			"header:NAME:REGEX off a header that a mesh has set. What the first group of the expression matches is the agent's name.")
	s.certificateSettings.declare(f, principalCertificates)
	s.issuing.declare(f)
	s.spiffe.declare(f, false)
	s.tlsSettings.declare(f)
	f.add("insecure-plaintext", onOff(&s.plaintext, false),
		"Listen without TLS, behind a mesh that encrypts and authenticates; needs --auth header:NAME:REGEX, and believes headers from this host alone.")

	s.live.declare(f)
	s.shared.declare(f)
	s.replica.declare(f)
	s.observeSettings.declare(f, 8000, 8003)
}

// check finds what is wrong with the settings, and with their combination.
func (s *principalSettings) check(f *flags, bad *validationErrors) []warning {
	s.clusterSettings.check(f, bad)
	s.observeSettings.check(f, bad, "listen-port", "resource-proxy-port", "redis-proxy-port")
	checkPatterns(f, bad, "allowed-namespaces", s.allowedNamespaces)
	checkSelector(f, bad, "label-selector", s.selector)
	s.checkNamespaces(f, bad)
	s.live.check(f, bad)
	s.shared.check(f, bad)
	s.replica.check(f, bad)
	if err := checkHost(s.listenHost); s.listenHost != "" && err != nil {
		bad.add("%s: %w", f.name("listen-host"), err)
	}
	if s.keepAliveLeast < time.Second {
		bad.add("%s %s is too short: it is what keeps agents from asking all the time; give at least 1s", f.name("keepalive-min-interval"), s.keepAliveLeast)
	}
	if s.plaintext && s.webSocket {
		bad.add("%s contradicts %s: inside a WebSocket there is the agent's own TLS, which tells who it is; remove one or the other", f.name("enable-websocket"), f.name("insecure-plaintext"))
	}
	s.checkIdentity(f, bad)
	return nil
}

func (s *principalSettings) checkNamespaces(f *flags, bad *validationErrors) {
	if !s.namespaceCreate && f.anyGiven("namespace-create-pattern", "namespace-create-labels") {
		bad.add("%s without --namespace-create-enable has no effect: add the one or remove the other",
			f.names("namespace-create-pattern", "namespace-create-labels"))
	}
	if _, err := regexp.Compile(s.namespacePattern); err != nil {
		bad.add("%s is not a regular expression: %w", f.name("namespace-create-pattern"), err)
	}
	checkLabels(f, bad, "namespace-create-labels", s.namespaceLabels)
}

func (s *principalSettings) checkIdentity(f *flags, bad *validationErrors) {
	method, err := identity.ParseMethod(s.auth)
	if err != nil {
		bad.add("%s: %w", f.name("auth"), err)
	}
	switch byHeader := err == nil && method.Plaintext(); {
	case err != nil:
	case s.plaintext && !byHeader:
		bad.add("%s: without TLS there are no certificates to read %s %q from: use --auth header:NAME:REGEX, or remove --insecure-plaintext",
			f.name("insecure-plaintext"), f.name("auth"), s.auth)
	case byHeader && !s.plaintext:
		bad.add("%s %q: with TLS, agents are recognised by their certificates: use --auth mtls:REGEX, or add --insecure-plaintext if a mesh is in front",
			f.name("auth"), s.auth)
	}
	if tlsSettings := append(principalCertificates.flags(), tlsFlags...); s.plaintext && f.anyGiven(tlsSettings...) {
		bad.add("%s contradicts %s: there is no TLS to set up; remove one or the other", f.names(tlsSettings...), f.name("insecure-plaintext"))
	}
	s.certificateSettings.check(f, bad, principalCertificates, true)
	s.issuing.check(f, bad)
	s.spiffe.check(f, bad, principalCertificates, "insecure-plaintext")
	if err == nil && s.spiffe.socket != "" && !method.ByURI() {
		bad.add("%s needs --auth mtls:uri:REGEX, such as 'mtls:uri:^spiffe://example.org/argocd-agent/([^/]+)$': a SPIFFE ID is a URI", f.name("spiffe-endpoint-socket"))
	}
	s.tlsSettings.check(f, bad)
}

func (p *program) runPrincipal(ctx context.Context, s *principalSettings, warnings []warning) error {
	log := s.logger(p.stderr)
	warn(ctx, log, warnings)
	cfg, closeAll, err := s.config(ctx, log)
	if err != nil {
		return err
	}
	defer closeAll()
	if cfg.Trace, err = s.otlp.tracer(ctx, "argocd-agent-principal", log); err != nil {
		return err
	}
	defer cfg.Trace.Close()
	return s.spiffe.beside(ctx, log, func(ctx context.Context) error {
		return withProfiler(ctx, s.pprof, log, func(ctx context.Context) error { return p.start.principal(ctx, cfg) })
	})
}

// listenAddress is where agents are expected.
func (s *principalSettings) listenAddress() string {
	return net.JoinHostPort(strings.Trim(s.listenHost, "[]"), itoa(s.listenPort))
}
