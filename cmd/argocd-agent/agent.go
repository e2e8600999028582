package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// agentSettings are what a user can say about an agent.
type agentSettings struct {
	clusterSettings
	observeSettings
	tlsSettings
	certificateSettings

	mode              kind.Mode
	allowedNamespaces []string
	byDestination     bool
	createNamespaces  bool
	selector          string
	ignoreUnmanaged   bool
	mismatch          string
	recreated         string
	adoption          string
	syncTimeout       time.Duration
	serverAddress     string
	serverPort        int
	compress          bool
	webSocket         bool
	keepAlive         time.Duration
	heartbeat         time.Duration
	creds             credentials
	plaintext         bool
	insecure          bool
	joinSecret        string
	spiffe            spiffeSettings
	live              agentLive
	shared            agentShared
}

const agentPrefix = "ARGOCD_AGENT_"

func (p *program) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run on a workload cluster, beside Argo CD's application controller",
		Long: `Runs the agent: the end of the connection in a workload cluster.

It dials the principal on the hub and needs no way in. In managed mode the hub has the truth: what
people change there is made so here, and what becomes of it is reported back. In autonomous mode this
cluster has the truth, and the hub shows a copy that can be synced and refreshed from there. Argo CD's
own controllers do the deploying, also while the hub is away.`,
		Example: `  # In a pod of Argo CD's namespace, with the Secrets argocd-agent-client-tls and argocd-agent-ca:
  argocd-agent agent --agent-mode managed --server-address principal.example.com

  # From a shell, with certificates from files:
  argocd-agent agent --kubeconfig spoke.yaml --namespace argocd --agent-mode autonomous \
    --server-address 127.0.0.1 --server-port 8443 \
    --tls-client-cert agent.crt --tls-client-key agent.key --root-ca-path ca.crt`,
		Args: noArguments,
	}
	var s agentSettings
	f := newFlags(cmd.Flags(), agentPrefix)
	s.declare(f)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { f.help(cmd.OutOrStdout(), cmd) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		warnings, err := read(f, p.env, s.check)
		if err != nil {
			return err
		}
		return p.runAgent(cmd.Context(), &s, warnings)
	}
	return cmd
}

func (s *agentSettings) declare(f *flags) {
	f.heading("Cluster")
	s.clusterSettings.declare(f)
	f.add("informer-sync-timeout", duration(&s.syncTimeout, 0),
		"How long the first reading of the cluster may take before the agent ends with an error; 0s waits forever.")

	f.heading("What is replicated")
	f.add("agent-mode", choice(&s.mode, "", kind.Managed, kind.Autonomous),
		"Where Applications are written: on the hub (managed) or in this cluster (autonomous). It must be what the hub has registered.")
	f.envName("agent-mode", "ARGOCD_AGENT_MODE")
	f.defaultText("agent-mode", "none, it must be given")
	f.add("destination-based-mapping", onOff(&s.byDestination, false),
		"The hub assigns Applications by their destination, and they keep their namespace here; set it where the principal has it. Managed mode only.")
	f.add("create-namespace", onOff(&s.createNamespaces, false),
		"A namespace that an Application from the hub needs for itself is created; with --destination-based-mapping.")
	f.add("allowed-namespaces", list(&s.allowedNamespaces, "PATTERNS"),
		"Namespaces of this cluster that Applications may be in, beside Argo CD's own: globs or /regular expressions/, separated by commas.")
	f.defaultText("allowed-namespaces", "only Argo CD's own")
	f.add("label-selector", text(&s.selector, "SELECTOR", ""),
		"Only objects whose labels match are replicated, such as team=web,tier!=test.")
	f.defaultText("label-selector", "everything")
	f.add("adoption-policy", choice(&s.adoption, adoptAlways, adoptAlways, adoptNever),
		"What happens to an object here that was not made by the agent when the hub sends one of the same name: it is taken over, or the hub's is refused.")
	f.add("source-uid-mismatch-policy", choice(&s.mismatch, mismatchUpsert, mismatchUpsert, mismatchRecreate),
		"What happens when an object was deleted and made again on the hub: the one here is updated, or deleted and made again too.")
	f.add("on-application-recreate", choice(&s.recreated, recreatedIgnore, recreatedIgnore, recreatedClear, recreatedResync),
		"What follows when an Application was deleted here by hand and put back: resync syncs it at once. Its status on the hub is that of the new one in any case, so ignore and clear-status are the same.")
	f.add("ignore-unmanaged-apps", onOff(&s.ignoreUnmanaged, true),
		"Applications that did not come from the hub are left alone. This is always so.")

	f.heading("Connection")
	f.add("server-address", text(&s.serverAddress, "HOST", ""), "Host name or address of the principal.")
	f.envName("server-address", "ARGOCD_AGENT_REMOTE_SERVER")
	f.defaultText("server-address", "none, it must be given")
	f.add("server-port", port(&s.serverPort, 443), "Port of the principal.")
	f.envName("server-port", "ARGOCD_AGENT_REMOTE_PORT")
	f.add("keep-alive-ping-interval", duration(&s.keepAlive, 30*time.Second),
		"After how much silence the agent asks the principal for a sign of life; at least 10s, and not below the principal's --keepalive-min-interval.")
	f.add("heartbeat-interval", duration(&s.heartbeat, time.Minute),
		"How often the agent says on its stream what it has, from 5s to 1m, so that both sides know that they are equal, and a mesh or proxy on the way that counts only messages sees some; 0 is 1m.")
	f.add("enable-websocket", onOff(&s.webSocket, false),
		"Connect inside a WebSocket, where something on the way ends TLS or lets only HTTP/1.1 through; the principal has to have the same setting. TLS between agent and principal is inside it.")
	f.add("enable-compression", onOff(&s.compress, false), "Compress what is sent: less traffic for more work.")

	f.heading("Identity and TLS")
	f.add("creds", s.creds.value(),
		"How the agent proves who it is: mtls: with its certificate, header: with what a mesh adds, header:NAME:VALUE with a header of its own for a mesh to check.")
	s.certificateSettings.declare(f, agentCertificates)
	f.add("join-secret-name", text(&s.joinSecret, "SECRET", pki.JoinSecret),
		"Secret with a line (token) to join the hub with: where there is no certificate yet, it is exchanged for one.")
	s.spiffe.declare(f, true)
	s.tlsSettings.declare(f)
	f.add("insecure-tls", onOff(&s.insecure, false),
		"Do not verify the principal's certificate. Whoever is in between can read and change everything: for experiments only.")
	f.envName("insecure-tls", "ARGOCD_AGENT_TLS_INSECURE")
	f.add("insecure-plaintext", onOff(&s.plaintext, false),
		"Connect without TLS, through a mesh that encrypts and authenticates; needs --creds header:.")

	s.live.declare(f)
	s.shared.declare(f)
	s.observeSettings.declare(f, 8181, 8001)
}

// The policies, by the names users give them.
const (
	adoptAlways      = "always"
	adoptNever       = "never"
	mismatchUpsert   = "upsert"
	mismatchRecreate = "recreate"
	recreatedIgnore  = "ignore"
	recreatedClear   = "clear-status"
	recreatedResync  = "resync"
)

// check finds what is wrong with the settings, and with their combination.
func (s *agentSettings) check(f *flags, bad *validationErrors) (warnings []warning) {
	s.clusterSettings.check(f, bad)
	s.observeSettings.check(f, bad)
	checkPatterns(f, bad, "allowed-namespaces", s.allowedNamespaces)
	checkSelector(f, bad, "label-selector", s.selector)
	s.checkMode(f, bad)
	s.checkIdentity(f, bad)
	if s.serverAddress == "" {
		bad.add("--server-address is missing: give the host name of the principal, here or as %s", f.env["server-address"])
	} else if err := checkHost(s.serverAddress); err != nil {
		bad.add("%s %q: %w", f.name("server-address"), s.serverAddress, err)
	}
	if f.changed("keep-alive-ping-interval") && s.keepAlive < 10*time.Second { // gRPC would make it 10 s without a word
		bad.add("%s %s is too short: gRPC asks every 10s at most, and the principal sends away who asks more often than its --keepalive-min-interval", f.name("keep-alive-ping-interval"), s.keepAlive)
	}
	if s.heartbeat != 0 && (s.heartbeat < 5*time.Second || s.heartbeat > time.Minute) {
		bad.add("%s %s: give 5s to 1m; a shorter one is a load on the hub, and after a longer one differences would stay for long", f.name("heartbeat-interval"), s.heartbeat)
	}
	s.shared.check(f, bad)
	return append(s.live.check(f, bad), s.unusedSettings(f)...)
}

func (s *agentSettings) checkMode(f *flags, bad *validationErrors) {
	if s.mode == "" {
		bad.add("--agent-mode is missing: say managed or autonomous, here or as %s", f.env["agent-mode"])
	}
	if s.mode == kind.Autonomous && s.byDestination {
		bad.add("%s contradicts mode autonomous, in which the hub assigns nothing: remove it, or use mode managed", f.name("destination-based-mapping"))
	}
	if s.createNamespaces && !s.byDestination {
		bad.add("%s has no effect without --destination-based-mapping, because all Applications are in Argo CD's namespace: add the one or remove the other", f.name("create-namespace"))
	}
	if !s.ignoreUnmanaged {
		bad.add("%s cannot be turned off: Applications that did not come from the hub are always left alone; see --adoption-policy for those of the same name",
			f.name("ignore-unmanaged-apps"))
	}
}

func (s *agentSettings) checkIdentity(f *flags, bad *validationErrors) {
	switch {
	case s.plaintext && !s.creds.header:
		bad.add("%s: without TLS the agent has no certificate to show: use --creds header:, or remove --insecure-plaintext", f.name("insecure-plaintext"))
	case s.creds.header && !s.plaintext:
		bad.add("%s: with TLS the agent is recognised by its certificate: use --creds mtls:, or add --insecure-plaintext if a mesh is in between", f.name("creds"))
	}
	if s.plaintext && s.webSocket {
		bad.add("%s contradicts %s: inside a WebSocket there is the agent's own TLS, which tells who it is; remove one or the other", f.name("enable-websocket"), f.name("insecure-plaintext"))
	}
	if tlsSettings := append(agentCertificates.flags(), append([]string{"insecure-tls"}, tlsFlags...)...); s.plaintext && f.anyGiven(tlsSettings...) {
		bad.add("%s contradicts %s: there is no TLS to set up; remove one or the other", f.names(tlsSettings...), f.name("insecure-plaintext"))
	}
	if s.insecure && f.anyGiven("root-ca-path", "root-ca-secret-name") {
		bad.add("%s contradicts %s: no certificate is verified; remove one or the other", f.names("root-ca-path", "root-ca-secret-name"), f.name("insecure-tls"))
	}
	s.certificateSettings.check(f, bad, agentCertificates, !s.insecure)
	s.checkSecret(f, bad, "join-secret-name", s.joinSecret)
	s.spiffe.check(f, bad, agentCertificates, "insecure-plaintext", "insecure-tls")
	s.spiffe.checkServer(f, bad)
	s.tlsSettings.check(f, bad)
}

// unusedSettings warns of settings that do nothing in this mode. They contradict nothing:
// a fleet may share them.
func (s *agentSettings) unusedSettings(f *flags) (warnings []warning) {
	if s.mode == kind.Autonomous {
		for _, name := range []string{"adoption-policy", "source-uid-mismatch-policy", "on-application-recreate"} {
			if f.changed(name) {
				warnings = append(warnings, warning{f.name(name), "it has no effect in autonomous mode, in which nothing comes from the hub"})
			}
		}
	}
	if s.mode == kind.Managed && !s.byDestination && f.changed("allowed-namespaces") {
		warnings = append(warnings, warning{f.name("allowed-namespaces"),
			"it has no effect in managed mode without --destination-based-mapping: all Applications are in Argo CD's namespace"})
	}
	if s.insecure {
		warnings = append(warnings, warning{f.name("insecure-tls"), "the principal's certificate is not verified"})
	}
	return warnings
}

// credentials are what --creds says.
type credentials struct {
	header     bool // else: mtls
	name, text string
	written    string
}

func (c *credentials) value() *value[credentials] {
	*c = credentials{written: "mtls:"}
	return &value[credentials]{c, "METHOD", parseCredentials, func(c credentials) string { return c.written }}
}

func parseCredentials(s string) (credentials, error) {
	c := credentials{written: s}
	method, rest, _ := strings.Cut(s, ":")
	switch {
	case method == "mtls" && (rest == "" || rest == "any"):
		return c, nil
	case method != "header":
		return c, errors.New("it must be mtls:, header: or header:NAME:VALUE")
	}
	c.header = true
	c.name, c.text, _ = strings.Cut(rest, ":")
	if rest != "" && (c.name == "" || c.text == "" || !isHeaderName(c.name)) {
		return c, errors.New("a header must be written as header:NAME:VALUE")
	}
	return c, nil
}

func (p *program) runAgent(ctx context.Context, s *agentSettings, warnings []warning) error {
	log := s.logger(p.stderr)
	warn(ctx, log, warnings)
	cfg, closeAll, err := s.config(ctx, log)
	if err != nil {
		return err
	}
	defer closeAll()
	if cfg.Trace, err = s.otlp.tracer(ctx, "argocd-agent-agent", log); err != nil {
		return err
	}
	defer cfg.Trace.Close()
	return s.spiffe.beside(ctx, log, func(ctx context.Context) error {
		return withProfiler(ctx, s.pprof, log, func(ctx context.Context) error { return p.start.agent(ctx, cfg) })
	})
}

// server is where the principal is expected.
func (s *agentSettings) server() string {
	return net.JoinHostPort(strings.Trim(s.serverAddress, "[]"), itoa(s.serverPort))
}
