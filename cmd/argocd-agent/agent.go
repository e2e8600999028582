package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/existing"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

type agentSettings struct {
	commonSettings
	agent.Config // many flags set its fields directly

	ignoreUnmanaged bool
	mismatch        string
	adoption        string
	droppedFields   string
	serverAddresses []string
	serverPort      int
	creds           credentials
	insecure        bool
	joinSecret      string
	live            agentLive
	shared          agentShared
}

const agentPrefix = existing.AgentPrefix

func (p *program) agentCommand() *cobra.Command {
	return p.componentCommand(&cobra.Command{
		Use:   "agent",
		Short: "Run the agent on a workload cluster",
		Long: `Runs the agent, the workload cluster's end of the connection.

The agent connects to the principal on the hub. The cluster needs no ingress. In managed mode, the hub
owns Applications: the agent applies changes from the hub and reports the status. In autonomous mode,
this cluster owns them: the hub shows a replica, which users can sync and refresh there. Argo CD's
controllers on this cluster deploy, also while the agent is disconnected.`,
		Example: `  # In a pod of Argo CD's namespace, with the Secrets argocd-agent-client-tls and argocd-agent-ca:
  argocd-agent agent --agent-mode managed --server-address principal.example.com

  # From a shell, with certificates from files:
  argocd-agent agent --kubeconfig spoke.yaml --namespace argocd --agent-mode autonomous \
    --server-address 127.0.0.1 --server-port 8443 \
    --tls-client-cert agent.crt --tls-client-key agent.key --root-ca-path ca.crt`,
	}, agentPrefix, new(agentSettings))
}

// Policies for conflicting objects.
const (
	adoptAlways      = "always"
	adoptNever       = "never"
	mismatchUpsert   = "upsert"
	mismatchRecreate = "recreate"
	recreatedIgnore  = "ignore"
	recreatedClear   = "clear-status"
	recreatedResync  = "resync"

	refuseVerification = "refuse-verification"
	refuseDropped      = "refuse"
	warnDropped        = "warn"
)

var droppedFieldPolicies = map[string]kind.FieldPolicy{
	refuseVerification: kind.RefuseVerification, refuseDropped: kind.RefuseDropped, warnDropped: kind.WarnDropped,
}

func (s *agentSettings) declare(f *flags) {
	f.heading("Cluster")
	s.clusterSettings.declare(f)
	f.add("informer-sync-timeout", duration(&s.SyncTimeout, 0),
		"Timeout of the initial read of the cluster, after which the agent exits with an error. 0s waits forever.")

	f.add("facts", pairs(&s.Facts, "KEY=VALUE,…"),
		"Facts of this cluster that the agent reports to the hub, in addition to the version of Kubernetes, the region and the cloud provider. "+
			"The Agent on the hub decides which of them become labels of the cluster Secret (spec.cluster.facts).")

	f.heading("Replication")
	f.add("agent-mode", cmdline.Choice(&s.Mode, "", kind.Managed, kind.Autonomous),
		"Owner of Applications: the hub (managed) or this cluster (autonomous). Must equal the mode registered on the hub.").
		envName("ARGOCD_AGENT_MODE").defaultText("required")
	f.add("destination-based-mapping", boolean(&s.byDestination, false),
		"The hub assigns Applications by destination, and they keep their namespace in this cluster. If the hub has another "+
			"setting, the agent follows the hub and logs a warning. Only in managed mode.")
	f.add("create-namespace", boolean(&s.CreateNamespaces, false),
		"Create the namespace of an Application from the hub if it is missing. Only with destination mapping.")
	s.addReplication(f, "Namespaces of this cluster that can contain Applications, in addition to Argo CD's namespace.",
		"only Argo CD's namespace")
	f.add("adoption-policy", cmdline.Choice(&s.adoption, adoptAlways, adoptAlways, adoptNever),
		"If the hub sends an object and this cluster has one of the same name that the agent did not create: adopt it, or reject the "+
			"object of the hub.")
	f.add("source-uid-mismatch-policy", cmdline.Choice(&s.mismatch, mismatchUpsert, mismatchUpsert, mismatchRecreate),
		"If an object was deleted and created again on the hub: update the object of this cluster, or delete and create it again.")
	f.add("on-application-recreate", cmdline.Choice(&s.OnRecreate, recreatedIgnore, recreatedIgnore, recreatedClear, recreatedResync),
		"If a user deleted an Application in this cluster and the agent created it again: resync syncs it at once. The hub always shows "+
			"the status of the new Application, so ignore and clear-status are equal.")
	f.add("dropped-fields", cmdline.Choice(&s.droppedFields, refuseVerification, refuseVerification, refuseDropped, warnDropped),
		"If the hub sends an Application or AppProject with fields that the CRD of this cluster does not have: refuse it if a field "+
			"verifies sources (sourceIntegrity, signatureKeys), always refuse it, or store the rest. The hub's Applications show the fields.")
	f.add("application-events", boolean(&s.ApplicationEvents, true),
		"Send Events of this cluster's Applications to the hub, which shows them on its Applications.")
	f.add("self-upgrade-deployment", text(&s.SelfUpgradeDeployment, "NAME", ""),
		"Deployment of this agent, in the namespace of Argo CD. The hub can change its image if an AgentPolicy of this cluster allows it "+
			"(spec.upgrade). Needs further permissions.").defaultText("the hub cannot upgrade this agent")
	f.add("ignore-unmanaged-apps", boolean(&s.ignoreUnmanaged, true),
		"Ignore Applications that did not come from the hub. Cannot be turned off.")

	f.heading("Connection")
	f.add("server-address", list(&s.serverAddresses, "HOST,…"), "Host names or IP addresses of the principal, the preferred one first. If one "+
		"cannot be reached or is a standby, the agent tries the next. All need the same CA and port.").
		envName("ARGOCD_AGENT_REMOTE_SERVER").defaultText("required")
	f.add("server-port", port(&s.serverPort, 443), "Port of the principal.").envName("ARGOCD_AGENT_REMOTE_PORT")
	f.add("keep-alive-ping-interval", duration(&s.KeepAlive, 30*time.Second),
		"Idle time after which the agent sends a keepalive ping. At least 10s, and at least --keepalive-min-interval of the principal.")
	f.add("heartbeat-interval", duration(&s.Heartbeat, time.Minute),
		"Interval at which the agent sends its digests, from 5s to 1m, so that both sides know that they are in sync. It also keeps the "+
			"stream active for a service mesh or proxy that counts only messages. 0 means 1m.")
	f.add("enable-websocket", boolean(&s.webSocket, false),
		"Connect by WebSocket, through a proxy that terminates TLS or supports only HTTP/1.1. The principal needs the same setting. "+
			"Agent and principal negotiate TLS inside the WebSocket.")
	f.add("enable-compression", boolean(&s.Compression, false), "Compress messages with gzip. Reduces traffic, increases CPU use.")

	f.heading("Identity and TLS")
	f.add("creds", s.creds.value(),
		"Authentication: mtls: with the certificate, header: with a header that a service mesh adds, header:NAME:VALUE with a header that "+
			"a service mesh checks.")
	s.certificateSettings.declare(f, agentCertificates)
	f.add("join-secret-name", text(&s.joinSecret, "SECRET", pki.JoinSecret),
		"Secret with a join token (token). If the agent has no certificate, it exchanges the token for one.")
	s.spiffe.declare(f, "--spiffe-server-id")
	f.add("spiffe-server-id", text(&s.spiffe.server, "ID", ""),
		"SPIFFE ID of the principal, such as spiffe://example.org/argocd-agent/principal. The agent refuses any other identity.")
	s.tlsSettings.declare(f)
	f.add("insecure-tls", boolean(&s.insecure, false),
		"Do not verify the principal's certificate. An attacker in the network can read and change everything. For tests only.").
		envName("ARGOCD_AGENT_TLS_INSECURE")
	f.add("insecure-plaintext", boolean(&s.plaintext, false),
		"Connect without TLS, through a service mesh that encrypts and authenticates. Requires --creds header:.")

	s.live.declare(f)
	s.shared.declare(f)
	s.observeSettings.declare(f, 8181, 8001)
}

func (s *agentSettings) check(f *flags) {
	s.checkMode(f)
	s.checkIdentity(f)
	f.failIf("facts", checkLabels(s.Facts))
	if len(s.Facts) > agent.MaxFacts {
		f.fail("%s has %d facts: at most %d are possible", f.name("facts"), len(s.Facts), agent.MaxFacts)
	}
	if s.SelfUpgradeDeployment != "" {
		f.failIf("self-upgrade-deployment", dnsName(s.SelfUpgradeDeployment, validation.IsDNS1123Subdomain))
	}
	s.checkServers(f)
	if s.KeepAlive == 0 { // the default of existing installations
		s.KeepAlive = 30 * time.Second
	}
	if s.KeepAlive < 10*time.Second { // gRPC would silently use 10 s
		f.fail("%s %s is too short: the minimum is 10s", f.name("keep-alive-ping-interval"), s.KeepAlive)
	}
	if s.Heartbeat != 0 && (s.Heartbeat < 5*time.Second || s.Heartbeat > time.Minute) {
		f.failIf("heartbeat-interval", errors.New("must be 5s to 1m: a shorter interval loads the hub, a longer one delays the repair of drift"))
	}
	s.shared.check(f)
	s.live.check(f)
	s.warnUnused(f)
}

func (s *agentSettings) checkServers(f *flags) {
	switch n := len(s.serverAddresses); {
	case n == 0:
		f.fail("--server-address is missing: set it, or %s, to the host name of the principal", f.settings["server-address"].env)
	case n > maxServers:
		f.fail("%s has %d addresses: at most %d are possible", f.name("server-address"), n, maxServers)
	}
	for i, host := range s.serverAddresses {
		if err := checkHost(host); err != nil {
			f.fail("%s %q: %w", f.name("server-address"), host, err)
		} else if slices.Contains(s.serverAddresses[:i], host) {
			f.fail("%s has %s twice: remove one of them", f.name("server-address"), host)
		}
	}
}

// maxServers limits how long an agent tries addresses before it tries the first again.
const maxServers = 8

func (s *agentSettings) checkMode(f *flags) {
	if s.Mode == "" {
		f.fail("--agent-mode is missing: set it, or %s, to managed or autonomous", f.settings["agent-mode"].env)
	}
	if !s.ignoreUnmanaged {
		f.warn(f.name("ignore-unmanaged-apps"), "it has no effect: the agent always ignores Applications that did not come from the hub; for Applications of the same name, see --adoption-policy")
	}
}

func (s *agentSettings) checkIdentity(f *flags) {
	switch {
	case s.plaintext && !s.creds.header:
		f.fail("%s: without TLS the agent cannot use a certificate: use --creds header:, or remove --insecure-plaintext", f.name("insecure-plaintext"))
	case s.creds.header && !s.plaintext:
		f.fail("%s: with TLS the agent authenticates with its certificate: use --creds mtls:, or add --insecure-plaintext in a service mesh", f.name("creds"))
	}
	f.conflicts(s.plaintext, "insecure-plaintext", "without TLS it has no effect",
		append(agentCertificates.flags(), append([]string{"insecure-tls"}, tlsFlags...)...)...)
	f.conflicts(s.insecure, "insecure-tls", "no certificate is verified", "root-ca-path", "root-ca-secret-name")
	s.certificateSettings.check(f, agentCertificates, !s.insecure)
	checkSecret(f, "join-secret-name", s.joinSecret)
	s.spiffe.check(f, agentCertificates, "insecure-plaintext", "insecure-tls")
	f.requires(s.spiffe.socket != "", "--spiffe-endpoint-socket", "spiffe-server-id")
	switch {
	case s.spiffe.socket != "" && s.spiffe.server == "":
		f.fail("%s without --spiffe-server-id: any workload of the trust domain could impersonate the principal; set its SPIFFE ID", f.name("spiffe-endpoint-socket"))
	case s.spiffe.socket != "":
		f.failIf("spiffe-server-id", identity.CheckSPIFFEID(s.spiffe.server))
	}
}

// warnUnused warns about settings without effect in this mode. They are no errors because a fleet may share them.
func (s *agentSettings) warnUnused(f *flags) {
	for _, name := range []string{"adoption-policy", "source-uid-mismatch-policy", "on-application-recreate", "dropped-fields", "destination-based-mapping", "create-namespace"} {
		if s.Mode == kind.Autonomous && f.changed(name) {
			f.warn(f.name(name), "no effect in autonomous mode, in which the hub sends no objects")
		}
	}
	if s.Mode == kind.Managed && !s.byDestination && f.changed("allowed-namespaces") {
		f.warn(f.name("allowed-namespaces"),
			"no effect in managed mode if the hub maps by namespace: all Applications are in Argo CD's namespace")
	}
	if s.insecure {
		f.warn(f.name("insecure-tls"), "the principal's certificate is not verified")
	}
}

// credentials is the value of --creds.
type credentials struct {
	header     bool // otherwise mtls
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
	case method == "userpass":
		return c, errors.New("user names and passwords are not supported: use client certificates, which `argocd-agentctl pki issue agent` or a " +
			"join token gives to an agent, and set --creds mtls:")
	case method != "header":
		return c, errors.New("must be mtls:, header: or header:NAME:VALUE")
	}
	c.header = true
	c.name, c.text, _ = strings.Cut(rest, ":")
	if rest != "" && (c.text == "" || !isHeaderName(c.name)) {
		return c, errors.New("a header must be of the form header:NAME:VALUE")
	}
	return c, nil
}

func (s *agentSettings) run(ctx context.Context, to observers, open *listeners, start components) error {
	s.Log, s.Trace, s.Audit = to.log, to.tracer, to.audit
	if err := s.complete(ctx, open); err != nil {
		return err
	}
	return s.spiffe.runWith(ctx, to.log, func(ctx context.Context) error { return start.agent(ctx, s.Config) })
}

// complete completes the configuration of the agent and opens its listeners.
func (s *agentSettings) complete(ctx context.Context, open *listeners) (err error) {
	cfg := &s.Config
	build := thisBuild()
	cfg.Version, cfg.Commit, cfg.Date, cfg.Jitter = build.Version, build.Commit, build.Date, jitter
	cfg.Mapping, cfg.AllowedNamespaces, cfg.LabelSelector = s.mapping(), s.allowedNamespaces, s.labelSelector()
	cfg.WebSocket, cfg.Proxy = s.webSocket, http.ProxyFromEnvironment
	for _, host := range s.serverAddresses {
		cfg.Servers = append(cfg.Servers, hostPort(host, s.serverPort))
	}
	cfg.HeaderName, cfg.HeaderValue = s.creds.name, s.creds.text
	cfg.Policy.AdoptNever = s.adoption == adoptNever
	cfg.Policy.Recreate = s.mismatch == mismatchRecreate
	cfg.Policy.DroppedFields = droppedFieldPolicies[s.droppedFields]
	if cfg.Cluster, cfg.Namespace, err = s.connect(); err != nil {
		return err
	}
	if err = s.configureTLS(cfg); err != nil {
		return err
	}
	if err = s.live.config(cfg); err != nil {
		return err
	}
	if err = s.shared.config(ctx, open, cfg); err != nil {
		return err
	}
	cfg.MetricsListener, cfg.HealthListener, err = s.listen(ctx, open)
	return err
}

// configureTLS sets TLS and how the agent authenticates.
func (s *agentSettings) configureTLS(cfg *agent.Config) error {
	if s.plaintext {
		return nil
	}
	cfg.Explain = identity.ExplainClient
	if s.spiffe.socket != "" {
		s.spiffe.domains = []string{identity.TrustDomain(s.spiffe.server)}
	}
	if err := s.spiffe.open(cfg.Log); err != nil {
		return err
	}
	current := func(string) (*tls.Config, error) { return s.spiffe.source.ClientTLS(s.spiffe.server) }
	if s.spiffe.source == nil {
		source, secrets, err := s.source(cfg.Namespace, !s.insecure, cfg.Log)
		if err != nil {
			return err
		}
		current = func(server string) (*tls.Config, error) {
			host, _, err := net.SplitHostPort(server)
			if err != nil {
				return nil, err
			}
			return identity.ClientTLS(source, host)
		}
		cfg.Secrets = secrets
		if s.cert == "" {
			cfg.Certificates = &agent.Certificates{Client: s.secret, Authority: s.caSecret, Token: s.joinSecret}
		} else {
			cfg.Log.Info("Certificate is read from a file and not renewed", "file", s.cert)
		}
	}
	cfg.TLS = func(server string) (*tls.Config, error) {
		now, err := current(server)
		if err != nil {
			return nil, err
		}
		s.apply(now)
		if s.insecure { // SPIFFE excludes it
			now.InsecureSkipVerify = true
		}
		return now, nil
	}
	return nil
}
