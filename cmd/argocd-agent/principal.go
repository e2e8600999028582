package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/existing"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

type principalSettings struct {
	commonSettings
	principal.Config // many flags set its fields directly

	listenHost     string
	listenPort     int
	auth           string
	headerSources  []string
	issuing        issueSettings
	live           principalLive
	shared         principalShared
	search         principalSearch
	replicaAddress string
	hubLease       hubLease
	agentMebibytes int
	namespaced     bool

	disconnectedHealth string
}

const (
	principalPrefix = existing.PrincipalPrefix

	defaultKeepaliveMinInterval = 10 * time.Second
)

func (p *program) principalCommand() *cobra.Command {
	return p.componentCommand(&cobra.Command{
		Use:   "principal",
		Short: "Run the principal on the hub",
		Long: `Runs the principal, the hub's end of every agent's connection.

Agents connect to it and authenticate, usually with a client certificate. The principal sends each
agent its Applications, projects and repositories, and writes the status that the agent reports to
the hub's Applications. Argo CD's UI, API and CLI read it there. The hub needs no application
controller.

The namespace of an Application selects its agent. With --destination-based-mapping, its destination
selects the agent.`,
		Example: `  # In a pod of Argo CD's namespace, with the Secrets argocd-agent-principal-tls and argocd-agent-ca:
  argocd-agent principal

  # From a shell, with certificates from files, and namespaces created for new agents:
  argocd-agent principal --kubeconfig hub.yaml --namespace argocd \
    --tls-cert principal.crt --tls-key principal.key --root-ca-path ca.crt \
    --namespace-create-enable --log-level debug`,
	}, principalPrefix, new(principalSettings))
}

func (s *principalSettings) declare(f *flags) {
	f.heading("Cluster")
	s.clusterSettings.declare(f)

	f.heading("Replication")
	f.add("destination-based-mapping", boolean(&s.byDestination, false),
		"Assign an Application to the agent that its destination names, in any namespace. If off, its namespace selects the agent.")
	s.addReplication(f, "Namespaces of the hub whose Applications are replicated.",
		"the agents' namespaces or, with --destination-based-mapping, Argo CD's namespace")
	f.add("namespaced", boolean(&s.namespaced, false),
		"Read and write Applications only in the namespaces of --allowed-namespaces, which must be names. Roles in these namespaces are "+
			"enough. An agent with another namespace is refused.")
	f.add("share-unscoped-repositories", boolean(&s.ShareUnscopedRepositories, false),
		"Send repositories and credentials without a project to every managed agent. If off, they stay on the hub.")
	f.add("sync-repository-trust", boolean(&s.SyncRepositoryTrust, false),
		"Send the hub's TLS certificates and SSH host keys of Git servers to managed agents.")
	f.add("sync-argocd-settings", boolean(&s.SyncArgoSettings, false),
		"Send settings of ConfigMap argocd-cm to managed agents: resource.customizations, resource.exclusions, resource.inclusions, "+
			"application.resourceTrackingMethod and kustomize.buildOptions. Keys that the hub does not have stay as they are on the workload "+
			"cluster. If turned off again, its own values return.")

	f.add("sync-write-credentials", boolean(&s.SyncWriteCredentials, false),
		"Send Secrets with which a source hydrator pushes (types repository-write and repo-write-creds) to managed agents with an Application "+
			"that needs them. The Secret must have the project of the Application. If off, they stay on the hub.")
	f.add("application-events", boolean(&s.ApplicationEvents, true),
		"Show Events of agents' Applications on the hub's Applications. Agents with the same setting send them.")

	f.heading("Agents and their namespaces")
	f.add("require-registration", boolean(&s.RequireRegistration, true),
		"Refuse an agent without an Agent object, or with one that has no mode. If off, its first connection creates the Agent or sets the mode.")
	f.add("agent-max-items", number(&s.Limits.Items, "NUMBER", 50_000, 1, 1_000_000),
		"Objects of each kind that are stored for one agent. Further ones are rejected. An Agent can set spec.limits.items.")
	f.add("agent-max-mebibytes", number(&s.agentMebibytes, "NUMBER", 0, 0, 64<<10),
		"Size of the objects of each kind, in MiB, that are stored for one agent. Further ones are rejected. An Agent can set "+
			"spec.limits.mebibytes.").defaultText("an eighth of the memory limit of the container, at most 512")
	f.add("disconnected-after", duration(&s.Freshness.After, time.Minute),
		"How long an agent may be disconnected before its Applications show that. 0 means never. An Agent can set spec.disconnectedAfter.")
	f.add("disconnected-health", text(&s.disconnectedHealth, "WHICH", string(fleet.HideHealthRollingSync)),
		"Applications whose health is Unknown while their agent is disconnected: never (none), rollingsync (those of ApplicationSets with "+
			"the strategy RollingSync) or always (all).")
	f.add("disconnected-notice", boolean(&s.Freshness.Notice, true),
		"Annotate Applications of a disconnected agent with a notice. Argo CD 3.5 and later shows it as a banner.")
	f.add("namespace-create-enable", boolean(&s.NamespaceCreate.Enable, false), "Create the namespace of an agent if it is missing.")
	f.add("namespace-create-pattern", text(&s.NamespaceCreate.Pattern, "REGEX", ""),
		"Regular expression for the whole name of a namespace that can be created.").defaultText("any name")
	f.add("namespace-create-labels", pairs(&s.NamespaceCreate.Labels, "KEY=VALUE,…"), "Labels of created namespaces.")

	f.heading("Connection")
	f.add("listen-host", text(&s.listenHost, "HOST", ""), "Listen address for agents and live access.").defaultText("all addresses")
	f.add("listen-port", port(&s.listenPort, 8443), "Listen port for agents.")
	f.add("keepalive-min-interval", duration(&s.KeepaliveMinInterval, defaultKeepaliveMinInterval),
		"Minimum interval of keepalive pings. An agent that sends them more often is disconnected.")
	f.add("enable-websocket", boolean(&s.webSocket, false),
		"Accept agents by WebSocket as well, on the same port at /argocd-agent, with or without TLS around it. Use it behind a proxy that "+
			"terminates TLS or supports only HTTP/1.1. Inside the WebSocket, agents authenticate with their certificates.")

	f.heading("Identity and TLS")
	f.add("auth", text(&s.auth, "METHOD", "mtls:CN=([^,]+)"),
		"Source of an agent's name: mtls:REGEX or mtls:subject:REGEX reads the subject of its certificate, mtls:uri:REGEX a URI in it, "+
			"header:NAME:REGEX a header that a service mesh sets. The first group of the expression matches the name. The expression "+
			"must be anchored with ^ and $; CN=([^,]+) stands for the common name. With header:x-forwarded-client-cert:REGEX, the "+
			"expression matches the URI in the header.")
	f.add("auth-header-sources", list(&s.headerSources, "CIDRS"),
		"Comma-separated address prefixes of the gateways from which the header of --auth is trusted. Other clients are refused.").
		defaultText("this host, where the sidecar of a service mesh runs")
	s.certificateSettings.declare(f, principalCertificates)
	s.issuing.declare(f)
	s.spiffe.declare(f, "--auth mtls:uri:REGEX, which finds an agent's name in its SPIFFE ID")
	f.add("spiffe-trust-domains", list(&s.spiffe.domains, "DOMAINS"),
		"Comma-separated SPIFFE trust domains of agents. Agents of other federated domains are refused.").
		defaultText("the trust domain of the principal")
	s.tlsSettings.declare(f)
	f.add("insecure-plaintext", boolean(&s.plaintext, false),
		"Listen without TLS, behind a service mesh that encrypts and authenticates. Requires --auth header:NAME:REGEX.")

	s.live.declare(f)
	s.shared.declare(f)
	s.search.declare(f)

	f.heading("Standby hub")
	f.add("active-hub-address", list(&s.ActiveHubs, "HOST:PORT,…"),
		"Addresses of the other hub, the preferred one first. While this hub is a standby, it connects there and receives the objects of the "+
			"active hub. Both hubs need the same CA, with its key, in Secret argocd-agent-ca.").defaultText("a standby receives nothing")

	f.heading("Principal replicas")
	f.add("replica-name", text(&s.Replica, "NAME", ""), "Name of this principal replica. Must be unique on the hub.").
		defaultText("the host name, which is the name of the pod")
	f.add("replica-address", text(&s.replicaAddress, "HOST", ""),
		"Address of this principal replica for the other ones, usually that of the pod. They forward requests for its agents to the "+
			"port of the resource proxy.").defaultText("requests for agents of other replicas are refused")

	s.hubLease.declare(f)

	s.observeSettings.declare(f, 8000, 8003)
}

func (s *principalSettings) check(f *flags) {
	s.checkNamespaced(f)
	f.requires(s.NamespaceCreate.Enable, "--namespace-create-enable", "namespace-create-pattern", "namespace-create-labels")
	if _, err := regexp.Compile(s.NamespaceCreate.Pattern); err != nil {
		f.failIf("namespace-create-pattern", fmt.Errorf("not a regular expression: %w", err))
	}
	if s.Freshness.Health = fleet.HealthPolicy(s.disconnectedHealth); !slices.Contains(fleet.HealthPolicies, s.Freshness.Health) {
		f.fail("%s is %q: use never, rollingsync or always", f.name("disconnected-health"), s.disconnectedHealth)
	}
	f.failIf("namespace-create-labels", checkLabels(s.NamespaceCreate.Labels))
	if s.listenHost != "" {
		f.failIf("listen-host", checkHost(s.listenHost))
	}
	if s.KeepaliveMinInterval == 0 { // the default of existing installations
		s.KeepaliveMinInterval = defaultKeepaliveMinInterval
	}
	if s.KeepaliveMinInterval < time.Second {
		f.fail("%s %s is too short: the minimum is 1s", f.name("keepalive-min-interval"), s.KeepaliveMinInterval)
	}
	s.checkIdentity(f)
	s.live.check(f)
	s.shared.check(f)
	s.search.check(f, s.plaintext)
	s.hubLease.check(f)
	s.checkActiveHubs(f)
	if s.Replica != "" {
		f.failIf("replica-name", dnsName(strings.ToLower(s.Replica), validation.IsDNS1123Subdomain))
	}
	if s.replicaAddress != "" {
		f.failIf("replica-address", checkHost(s.replicaAddress))
	}
}

func (s *principalSettings) checkActiveHubs(f *flags) {
	if n := len(s.ActiveHubs); n > maxServers {
		f.fail("%s has %d addresses: at most %d are possible", f.name("active-hub-address"), n, maxServers)
	}
	for i, address := range s.ActiveHubs {
		if err := checkAddress(address); err != nil {
			f.fail("%s %q: %w", f.name("active-hub-address"), address, err)
		} else if slices.Contains(s.ActiveHubs[:i], address) {
			f.fail("%s has %s twice: remove one of them", f.name("active-hub-address"), address)
		}
	}
	f.conflicts(s.plaintext, "insecure-plaintext", "a standby connects with a certificate", "active-hub-address")
}

// checkNamespaced checks that Roles in a fixed set of namespaces are enough. Namespaces that are created have no Roles.
func (s *principalSettings) checkNamespaced(f *flags) {
	if !s.namespaced {
		return
	}
	if len(s.allowedNamespaces) == 0 {
		f.fail("%s requires %s with the namespaces of the agents", f.name("namespaced"), f.name("allowed-namespaces"))
	}
	for _, namespace := range s.allowedNamespaces {
		if err := dnsName(namespace, validation.IsDNS1123Label); err != nil {
			f.fail("%s with %s: %w. Patterns are not possible", f.name("namespaced"), f.name("allowed-namespaces"), err)
		}
	}
	f.conflicts(s.byDestination, "namespaced", "an Application could be in any namespace", "destination-based-mapping")
	f.conflicts(s.NamespaceCreate.Enable, "namespaced", "the principal would have no Role in a new namespace", "namespace-create-enable")
}

func (s *principalSettings) checkIdentity(f *flags) {
	switch method, err := identity.ParseMethod(s.auth); {
	case err != nil:
		f.fail("%s: %w", f.name("auth"), err)
	case s.plaintext && !method.Plaintext():
		f.fail("%s: without TLS there is no certificate for %s %q: use --auth header:NAME:REGEX, or remove --insecure-plaintext",
			f.name("insecure-plaintext"), f.name("auth"), s.auth)
	case method.Plaintext() && !s.plaintext:
		f.fail("%s %q: with TLS, agents authenticate with certificates: use --auth mtls:REGEX, or add --insecure-plaintext behind a service mesh",
			f.name("auth"), s.auth)
	case s.spiffe.socket != "" && !method.ByURI():
		f.fail("%s requires --auth mtls:uri:REGEX, such as 'mtls:uri:^spiffe://example.org/argocd-agent/([^/]+)$': a SPIFFE ID is a URI",
			f.name("spiffe-endpoint-socket"))
	}
	f.requires(s.plaintext, "--auth header:NAME:REGEX", "auth-header-sources")
	f.requires(s.spiffe.socket != "", "--spiffe-endpoint-socket", "spiffe-trust-domains")
	if _, err := parsePrefixes(s.headerSources); err != nil {
		f.failIf("auth-header-sources", err)
	}
	for _, domain := range s.spiffe.domains {
		f.failIf("spiffe-trust-domains", identity.CheckTrustDomain(domain))
	}
	f.conflicts(s.plaintext, "insecure-plaintext", "without TLS it has no effect", append(principalCertificates.flags(), tlsFlags...)...)
	s.certificateSettings.check(f, principalCertificates, true)
	s.issuing.check(f)
	s.spiffe.check(f, principalCertificates, "insecure-plaintext")
}

func (s *principalSettings) run(ctx context.Context, to observers, open *listeners, start components) error {
	s.Log, s.Trace, s.Audit = to.log, to.tracer, to.audit
	if err := s.complete(ctx, open); err != nil {
		return err
	}
	return s.spiffe.runWith(ctx, to.log, func(ctx context.Context) error { return start.principal(ctx, s.Config) })
}

// complete completes the configuration of the principal and opens its listeners.
func (s *principalSettings) complete(ctx context.Context, open *listeners) (err error) {
	cfg := &s.Config
	build := thisBuild()
	cfg.Version, cfg.Commit, cfg.Date, cfg.Jitter = build.Version, build.Commit, build.Date, jitter
	cfg.Mapping, cfg.AllowedNamespaces, cfg.LabelSelector = s.mapping(), s.allowedNamespaces, s.labelSelector()
	cfg.WebSocket, cfg.ResourceProxy = s.webSocket, s.live.address
	if cfg.Limits.Bytes = s.agentMebibytes << 20; cfg.Limits.Bytes == 0 {
		cfg.Limits.Bytes = eighthOfMemory(16<<20, 512<<20)
	}
	cfg.Live.RedisCacheBytes = eighthOfMemory(16<<20, 256<<20)
	cfg.Live.RedisValueBytes = eighthOfMemory(64<<20, 256<<20)
	cfg.RequireRegistration = cfg.RequireRegistration && !s.live.selfRegister
	if cfg.Cluster, cfg.Namespace, err = s.connect(); err != nil {
		return err
	}
	if s.namespaced {
		cfg.ApplicationNamespaces = slices.Compact(slices.Sorted(slices.Values(s.allowedNamespaces)))
	}
	cfg.PKINamespace = cmp.Or(s.issuing.namespace, cfg.Namespace)
	if err = s.configureTLS(cfg); err != nil {
		return err
	}
	if cfg.Listener, err = open.open(ctx, "agents", hostPort(s.listenHost, s.listenPort)); err != nil {
		return err
	}
	hubRedis, secrets, err := s.live.redis.endpoint(cfg.Namespace)
	if err != nil {
		return err
	}
	cfg.ArgoSecrets = secrets
	if err = s.live.config(ctx, s.listenHost, open, hubRedis, cfg); err != nil {
		return err
	}
	if s.replicaAddress != "" && cfg.Live.Resource != nil {
		cfg.ReplicaAddress = hostPort(s.replicaAddress, s.live.resourcePort)
	}
	if err = s.shared.config(hubRedis, cfg); err != nil {
		return err
	}
	if err = s.search.config(ctx, s.listenHost, open, cfg); err != nil {
		return err
	}
	if cfg.HubLease, err = s.hubLease.config(); err != nil {
		return err
	}
	cfg.MetricsListener, cfg.HealthListener, err = s.listen(ctx, open)
	return err
}

// configureTLS sets TLS and how agents authenticate.
func (s *principalSettings) configureTLS(cfg *principal.Config) error {
	method, err := identity.ParseMethod(s.auth)
	if err != nil {
		return err
	}
	authenticator := &identity.Authenticator{Method: method}
	if authenticator.Trusted, err = parsePrefixes(s.headerSources); err != nil {
		return err
	}
	cfg.Authenticate = principal.AuthenticateWith(authenticator)
	if s.plaintext {
		return nil
	}
	cfg.Revocations = new(identity.Revocations)
	authenticator.Revoked = cfg.Revocations
	cfg.Live.Names = method.AgentFromCertificate
	cfg.Explain = identity.ExplainServer
	if err := s.spiffe.open(cfg.Log); err != nil {
		return err
	}
	var source identity.Source
	if s.spiffe.source != nil {
		cfg.TLS = s.spiffe.source.ServerTLS(cfg.Revocations)
	} else {
		if source, cfg.Secrets, err = s.source(cfg.PKINamespace, true, cfg.Log); err != nil {
			return err
		}
		cfg.TLS = identity.ServerTLS(source, cfg.Revocations)
	}
	s.apply(cfg.TLS)
	s.issue(cfg, source, method)
	return nil
}

// parsePrefixes parses address prefixes. An address is a prefix of one address.
func parsePrefixes(list []string) (prefixes []netip.Prefix, err error) {
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil {
				return nil, fmt.Errorf("%q is not an address prefix such as 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}
