package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// known is what the examination of a side finds out for the comparison of both.
type known struct {
	side
	bundle []*x509.Certificate
	agent  string // spoke: by its certificate

	controller bool // hub: it has an application controller
}

func (p *Program) examineHub(ctx context.Context, hub *cluster, o checkOptions) ([]finding, *known) {
	e := &checkRun{program: p, where: hub.String()}
	k := &known{}
	var ok bool
	if k.skew, ok = e.reach(ctx, hub); !ok {
		return e.found, nil
	}
	e.definitions(hub, true)
	if !e.common(ctx, hub, principalDeployment, hub.principalSettings, "argocd-server", k) {
		return e.found, nil
	}
	e.permissions(ctx, hub, "argocd-agent-principal", "principal")
	k.bundle = e.trustedCAs(ctx, hub, "argocd-agentctl pki init; or let cert-manager put one there")
	leaf := e.certificate(ctx, hub, pki.PrincipalSecret, "argocd-agentctl pki issue principal --upsert --dns NAME", x509.ExtKeyUsageServerAuth, k.bundle)
	host := ""
	if address, err := hub.principalAddress(ctx, o.address); err == nil {
		host, _, _ = net.SplitHostPort(address)
	}
	e.names(leaf, host, "add "+host+" to --tls-server-names of the principal; or: argocd-agentctl pki issue principal --upsert --dns "+host)
	if k.settings.get("enable-resource-proxy") != "false" {
		leaf = e.certificate(ctx, hub, pki.ProxySecret, "argocd-agentctl pki issue resource-proxy --upsert --dns argocd-agent-resource-proxy", x509.ExtKeyUsageServerAuth, k.bundle)
		proxyHost, _, _ := net.SplitHostPort(cmp.Or(k.settings.get("resource-proxy-address"), "argocd-agent-resource-proxy:9090"))
		e.names(leaf, proxyHost, "argocd-agentctl pki issue resource-proxy --upsert --dns "+proxyHost)
	}
	e.redis(ctx, hub, principalDeployment, k.settings.get("redis-server-address"), k.settings, o.offline)
	controller, err := hub.argoImage(ctx, "argocd-application-controller")
	k.controller = err != nil || controller != "" // who cannot look says rather too much
	e.argoOnHub(k)
	e.argoRedis(ctx, hub, k)
	e.fleet(ctx, hub, k)
	e.trouble(ctx, hub, principalDeployment)
	return e.found, k
}

func (p *Program) examineSpoke(ctx context.Context, spoke *cluster, o checkOptions) ([]finding, *known) {
	e := &checkRun{program: p, where: spoke.String()}
	k := &known{}
	var ok bool
	if k.skew, ok = e.reach(ctx, spoke); !ok {
		return e.found, nil
	}
	e.definitions(spoke, false)
	if !e.common(ctx, spoke, agentDeployment, spoke.agentSettings, "argocd-application-controller", k) {
		return e.found, nil
	}
	e.permissions(ctx, spoke, "argocd-agent-agent", "agent")
	rejoin := "make a token on the hub with `argocd-agentctl agent join-token`, and use it here"
	k.bundle = e.trustedCAs(ctx, spoke, rejoin)
	if leaf := e.certificate(ctx, spoke, pki.ClientSecret, rejoin, x509.ExtKeyUsageClientAuth, k.bundle); leaf != nil {
		k.agent = leaf.Subject.CommonName
	}
	e.redis(ctx, spoke, agentDeployment, k.settings.get("redis-addr"), k.settings, o.offline)
	if mode := k.settings.get("agent-mode"); k.settings.installed && mode != "managed" && mode != "autonomous" {
		e.problem("mode", "set ARGOCD_AGENT_MODE in ConfigMap "+paramsConfigMap+" to managed or autonomous", "the agent is told no mode (%q)", mode)
	}
	address := o.address
	if host := k.settings.get("server-address"); address == "" && host != "" {
		address = net.JoinHostPort(host, cmp.Or(k.settings.get("server-port"), "443"))
	}
	e.trouble(ctx, spoke, agentDeployment)
	switch {
	case o.offline:
	case address == "":
		e.note("connection", "not looked at: it is not known where the principal is; say it with --address")
	default:
		e.link(ctx, spoke, address, k.bundle, k.settings)
	}
	return e.found, k
}

// common looks at what both sides have.
func (e *checkRun) common(ctx context.Context, c *cluster, deployment string, read func(context.Context) (*settings, error), argo string, k *known) bool {
	var err error
	if k.settings, err = read(ctx); err == nil {
		k.argo, err = c.argoSettings(ctx)
	}
	if err == nil {
		k.params, err = c.configMap(ctx, "argocd-cmd-params-cm")
	}
	if err != nil {
		e.problem("settings", "ask for the right to read Deployments and ConfigMaps of "+c.namespace, "%v", err)
		return false
	}
	e.installed(deployment, k.settings)
	if k.argo == nil {
		e.warning("argo cd", "install Argo CD into namespace "+c.namespace+", or name its namespace with --"+c.flag+"-namespace", "there is no ConfigMap argocd-cm: is this the namespace of Argo CD?")
	}
	k.image, err = c.argoImage(ctx, argo)
	switch {
	case err != nil:
		e.unknown("argo cd", err)
	case k.image == "":
		e.note("argo cd", "no %s is installed here as a Deployment or StatefulSet", argo)
	default:
		e.ok("argo cd", "%s, image %s", argo, k.image)
	}
	return true
}

// argoImage is the image of a component of Argo CD; empty: it is not there.
func (c *cluster) argoImage(ctx context.Context, name string) (string, error) {
	d, err := c.kube.AppsV1().Deployments(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && len(d.Spec.Template.Spec.Containers) > 0 {
		return d.Spec.Template.Spec.Containers[0].Image, nil
	}
	if err != nil && !notFound(err) {
		return "", c.explain(err)
	}
	s, err := c.kube.AppsV1().StatefulSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && len(s.Spec.Template.Spec.Containers) > 0 {
		return s.Spec.Template.Spec.Containers[0].Image, nil
	}
	if err != nil && !notFound(err) {
		return "", c.explain(err)
	}
	return "", nil
}

// argoOnHub looks at settings of Argo CD that agents need.
func (e *checkRun) argoOnHub(k *known) {
	if k.params == nil {
		return
	}
	if k.params["application.namespaces"] == "" && !k.settings.on("destination-based-mapping") {
		e.problem("argo cd", `set application.namespaces in ConfigMap argocd-cmd-params-cm, to "*" or to the agents' namespaces, and restart argocd-server`,
			"argocd-server shows Applications of its own namespace alone, not those of agents")
	} else {
		e.ok("argo cd", "argocd-server shows Applications of %s", cmp.Or(k.params["application.namespaces"], "its own namespace"))
	}
	if k.argo["exec.enabled"] != "true" {
		e.note("argo cd", `terminals are off: exec.enabled in ConfigMap argocd-cm is not "true"`)
	}
}

// argoRedis reports whether argocd-server sees the resource trees of agents' Applications: through the principal's Redis.
func (e *checkRun) argoRedis(ctx context.Context, hub *cluster, k *known) {
	if k.image == "" {
		return // there is no argocd-server to look at
	}
	server, err := hub.settings(ctx, "argocd-server", "ARGOCD_SERVER_")
	if err != nil {
		e.unknown("redis", err)
		return
	}
	address := cmp.Or(server.flags["redis"], server.env["REDIS_SERVER"], k.params["redis.server"], redisService+":6379")
	if strings.HasPrefix(address, redisService+":") || strings.HasPrefix(address, redisService+".") {
		e.warning("redis", "let argocd-server alone use the principal's: --redis argocd-agent-redis-proxy:6379", "argocd-server uses %s itself, and so shows no resource trees of agents' Applications", address)
		return
	}
	e.ok("redis", "argocd-server uses %s", address)
}

// fleet looks at the agents that are registered.
func (e *checkRun) fleet(ctx context.Context, hub *cluster, k *known) {
	list, err := (agents{hub}).list(ctx, "")
	if err != nil {
		e.unknown("agents", err)
		return
	}
	connected := 0
	for i := range list.Items {
		agent := &list.Items[i]
		if agent.Status.Connected {
			connected++
		}
		for _, condition := range agent.Status.Conditions {
			if condition.Type == "Registered" && condition.Status == metav1.ConditionFalse && condition.Reason != "ModeNotSet" {
				e.problem("agents", "correct Agent "+agent.Name+", or what stands in its way", "%s is not registered as declared: %s", agent.Name, condition.Message)
			}
		}
		switch state := stateOf(agent).text; {
		case state == "away":
			e.problem("agents", "argocd-agentctl doctor --agent-context … looks at its cluster", "%s is away%s", agent.Name, e.program.sinceText(agent.Status.Since))
		case state == stateNoWrites:
			e.problem("agents", "see to that cluster's API server; what is sent there waits until then, and nothing is lost", "%s is connected, and its cluster takes no writes: %s",
				agent.Name, conditionMessage(agent, v1alpha1.ConditionWritable))
		case state == "held":
			e.problem("agents", "argocd-agentctl pending "+agent.Name, "%s holds something back until somebody confirms it", agent.Name)
		case agent.Status.Connected && agent.Status.Diverged > 0:
			e.warning("agents", "if it stays: argocd-agentctl pending "+agent.Name+"; argocd-agentctl diff "+agent.Name+" --agent-context …",
				"the two sides of %s differ in %s", agent.Name, pluralize(int(agent.Status.Diverged), "item"))
		}
		e.agentVersion(agent.Name, agent.Status.Version, k.settings.image)
	}
	e.ok("agents", "%d, of which %d are connected", len(list.Items), connected)
	e.misplacedApplications(ctx, hub, list.Items, k.settings.on("destination-based-mapping"))
}

// agentVersion warns of releases that were never tried together.
func (e *checkRun) agentVersion(agent, version, image string) {
	if tag := tagOf(image); tooFar(version, tag) {
		e.warning("versions", "upgrade the older one", "agent %s is %s and the principal %s: more than two minor versions apart is not tested", agent, version, tag)
	}
}

// tagOf is the tag of an image, which releases call like their version.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	last := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return tag
}

// tooFar tells that two versions were never tried together, as far as they can be compared.
func tooFar(version, other string) bool {
	a, okA := minor(version)
	b, okB := minor(other)
	return okA && okB && (a[0] != b[0] || max(a[1], b[1])-min(a[1], b[1]) > 2)
}

// minor reads major and minor version.
func minor(version string) ([2]int, bool) {
	var v [2]int
	n, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &v[0], &v[1])
	return v, n == 2 && err == nil
}

// compareSides looks at what has to be the same on both.
func (p *Program) compareSides(ctx context.Context, hub, spoke *cluster, h, s *known) []finding {
	e := &checkRun{program: p, where: "both sides"}
	e.sameAuthority(h.bundle, s.bundle)
	switch apart := (h.skew - s.skew).Abs(); {
	case apart > skewBad:
		e.problem("clock", "let both clusters use NTP", "the clocks of the two clusters are %s apart", span(apart))
	case apart > skewNoted:
		e.warning("clock", "let both clusters use NTP", "the clocks of the two clusters are %s apart", span(apart))
	default:
		e.ok("clock", "the clocks of the two clusters agree")
	}
	if s.agent != "" {
		e.registration(ctx, hub, spoke, h, s)
	}
	e.sameArgo(h, s)
	return e.found
}

// registration compares what the hub has registered with what the agent is told.
func (e *checkRun) registration(ctx context.Context, hub, spoke *cluster, h, s *known) {
	agent, err := (agents{hub}).get(ctx, s.agent)
	if err != nil {
		if h.settings.on("require-registration") {
			e.problem("agent", "argocd-agentctl agent create "+s.agent, "the certificate names agent %s, which is not registered, and the hub requires it", s.agent)
		} else {
			e.note("agent", "the certificate names agent %s, which is not registered: that happens with its first connection", s.agent)
		}
		return
	}
	e.ok("agent", "%s by its certificate, %s", agent.Name, stateOf(agent).text)
	if uid, err := spoke.uid(ctx); err == nil && agent.Status.ClusterUID != "" && agent.Status.ClusterUID != uid {
		e.problem("agent", "give this cluster a name of its own; or, if it has taken the other's place, confirm it: argocd-agentctl pending", "%s is known as another cluster (%s): this one is %s", agent.Name, agent.Status.ClusterUID, uid)
	}
	if mode := s.settings.get("agent-mode"); mode != "" && agent.Spec.Mode != "" && mode != agent.Spec.Mode {
		e.problem("mode", "set ARGOCD_AGENT_MODE on the cluster to "+agent.Spec.Mode+", or suspend the agent, change its mode on the hub, and resume it", "the hub has %s registered as %s, and the agent is told %s", agent.Name, agent.Spec.Mode, mode)
	}
	onHub := cmp.Or(agent.Spec.Mapping, map[bool]string{true: "destination", false: "namespace"}[h.settings.on("destination-based-mapping")])
	onSpoke := map[bool]string{true: "destination", false: "namespace"}[s.settings.on("destination-based-mapping")]
	if s.settings.installed && agent.Spec.Mode != "autonomous" {
		if onHub != onSpoke {
			e.problem("mapping", "set --destination-based-mapping alike on both, or spec.mapping of Agent "+agent.Name, "the hub maps by %s and the agent by %s", onHub, onSpoke)
		} else {
			e.ok("mapping", "by %s on both", onHub)
		}
	}
}

// sameArgo compares the settings of Argo CD that show when they differ.
func (e *checkRun) sameArgo(h, s *known) {
	if h.argo == nil || s.argo == nil {
		return
	}
	for _, one := range []struct{ key, usual, then string }{
		{"application.resourceTrackingMethod", "annotation", "the hub's Argo CD does not recognise which objects belong to an Application"},
		{"application.instanceLabelKey", "app.kubernetes.io/instance", "the hub's Argo CD does not recognise which objects belong to an Application"},
	} {
		a, b := cmp.Or(h.argo[one.key], one.usual), cmp.Or(s.argo[one.key], one.usual)
		if a != b {
			e.problem("argo cd", "set "+one.key+" alike in ConfigMap argocd-cm of both", "%s is %q on the hub and %q on the cluster: %s", one.key, a, b, one.then)
		} else {
			e.ok("argo cd", "%s is %s on both", one.key, a)
		}
	}
	a, b := cmp.Or(h.params["redis.compression"], "gzip"), cmp.Or(s.params["redis.compression"], "gzip")
	if told := cmp.Or(h.settings.get("redis-compression-type"), "gzip"); told != a {
		e.problem("compression", "set --redis-compression-type of the principal to "+a, "the hub's Argo CD compresses with %s, and the principal is told %s", a, told)
	} else if a != b {
		e.note("compression", "%s on the hub and %s on the cluster; what passes between is converted", a, b)
	}
	if keys := customized(h.argo, s.argo, h.controller); len(keys) > 0 {
		e.warning("argo cd", "keep them the same in ConfigMap argocd-cm of both: diffs and actions are made on the hub, health on the cluster", "resource customizations differ: %s", strings.Join(keys, ", "))
	} else {
		e.ok("argo cd", "resource customizations are the same on both")
	}
}

// ofController tells which settings the application controller alone goes by.
func ofController(key string) bool {
	return strings.HasPrefix(key, "resource.customizations.ignoreResourceUpdates.") ||
		slices.Contains([]string{"resource.exclusions", "resource.inclusions", "resource.ignoreResourceUpdatesEnabled", "resource.compareoptions", "resource.respectRBAC"}, key)
}

// customized lists the resource customizations that differ. Where the hub has no application controller, what only that
// one goes by does not matter there.
func customized(a, b map[string]string, controller bool) []string {
	var keys []string
	for _, pair := range [][2]map[string]string{{a, b}, {b, a}} {
		for key, value := range pair[0] {
			if strings.HasPrefix(key, "resource.") && strings.TrimSpace(value) != strings.TrimSpace(pair[1][key]) && !slices.Contains(keys, key) && (controller || !ofController(key)) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}
