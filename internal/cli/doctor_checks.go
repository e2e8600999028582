package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// checked is what the checks of one side found, for the comparison of both.
type checked struct {
	settings   *settings
	skew       time.Duration     // of its clock against this machine
	argo       map[string]string // argocd-cm
	params     map[string]string // argocd-cmd-params-cm
	install    *argoInstallation
	image      string            // of argocd-server on the hub, of the application controller on the spoke
	argoFlags  map[string]string // of the same component
	bundle     []*x509.Certificate
	agent      string // spoke: name in the certificate
	controller bool   // hub: has an application controller, or could not be checked
}

func (p *Program) checkHub(ctx context.Context, hub *cluster, o checkOptions) ([]finding, *checked) {
	e := &checkRun{program: p, cluster: hub.String()}
	k := &checked{}
	var ok bool
	if k.skew, ok = e.reach(ctx, hub); !ok {
		return e.found, nil
	}
	e.crds(hub, true)
	if !e.common(ctx, hub, hub.principalSettings, serverComponent, k) {
		return e.found, nil
	}
	var namespaces []string
	if k.settings.on("namespaced") {
		namespaces = commaList(k.settings.get("allowed-namespaces"))
	}
	e.permissions(ctx, hub, k.settings.account, "principal", namespaces)
	k.bundle = e.trustedCAs(ctx, hub, "argocd-agentctl pki init; or create the Secret with cert-manager")
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
	e.redis(ctx, hub, k.settings.get("redis-server-address"), k, o.offline)
	k.controller = k.install.unknown || k.install.controller != nil
	e.argoOnHub(k)
	e.argoRedis(ctx, hub, k)
	e.preserved(ctx, hub, k)
	e.fleet(ctx, hub, k)
	e.writeOutage(ctx, hub, principalDeployment)
	return e.found, k
}

func (p *Program) checkSpoke(ctx context.Context, spoke *cluster, o checkOptions) ([]finding, *checked) {
	e := &checkRun{program: p, cluster: spoke.String()}
	k := &checked{}
	var ok bool
	if k.skew, ok = e.reach(ctx, spoke); !ok {
		return e.found, nil
	}
	e.crds(spoke, false)
	if !e.common(ctx, spoke, spoke.agentSettings, controllerComponent, k) {
		return e.found, nil
	}
	e.argoOnSpoke(k)
	e.permissions(ctx, spoke, k.settings.account, "agent", nil)
	rejoin := "create a token on the hub with `argocd-agentctl agent join-token` and use it on this cluster"
	k.bundle = e.trustedCAs(ctx, spoke, rejoin)
	if leaf := e.certificate(ctx, spoke, pki.ClientSecret, rejoin, x509.ExtKeyUsageClientAuth, k.bundle); leaf != nil {
		k.agent = leaf.Subject.CommonName
	}
	e.redis(ctx, spoke, k.settings.get("redis-addr"), k, o.offline)
	if mode := k.settings.get("agent-mode"); k.settings.installed && mode != "managed" && mode != "autonomous" {
		e.problem("mode", "set ARGOCD_AGENT_MODE in ConfigMap "+paramsConfigMap+" to managed or autonomous", "invalid agent mode %q", mode)
	}
	addresses := []string{o.address}
	if hosts := k.settings.get("server-address"); o.address == "" && hosts != "" {
		addresses = nil
		for host := range strings.SplitSeq(hosts, ",") {
			addresses = append(addresses, net.JoinHostPort(strings.Trim(strings.TrimSpace(host), "[]"), cmp.Or(k.settings.get("server-port"), "443")))
		}
	}
	e.writeOutage(ctx, spoke, agentDeployment)
	switch {
	case o.offline:
	case addresses[0] == "":
		e.note("connection", "not checked: the address of the principal is unknown. Set --address")
	default:
		for _, address := range addresses {
			e.link(ctx, spoke, address, k.bundle, k.settings)
		}
	}
	return e.found, k
}

// common runs the checks of both sides.
func (e *checkRun) common(ctx context.Context, c *cluster, read func(context.Context) (*settings, error), component string, k *checked) bool {
	var err error
	if k.settings, err = read(ctx); err == nil {
		k.argo, err = c.argoSettings(ctx)
	}
	if err == nil {
		k.params, err = c.configMap(ctx, "argocd-cmd-params-cm")
	}
	if err != nil {
		e.problem("settings", "request permission to read Deployments and ConfigMaps in "+c.namespace, "%v", err)
		return false
	}
	e.installed(k.settings)
	if k.argo == nil {
		e.warning("argo cd", "install Argo CD into namespace "+c.namespace+", or set --"+c.flag+"-namespace", "ConfigMap argocd-cm not found")
	}
	if k.install, err = c.findArgo(ctx); err != nil {
		e.skipped("argo cd", err)
		return true
	}
	workload := k.install.server
	if component == controllerComponent {
		workload = k.install.controller
	}
	if workload == nil {
		e.note("argo cd", "no Deployment or StatefulSet argocd-%s", component)
		return true
	}
	k.image, k.argoFlags = workload.image, workload.flags
	e.ok("argo cd", "%s, image %s (%s)", workload.name, workload.image, k.install)
	return true
}

// argoOnHub checks settings of Argo CD that agents need.
func (e *checkRun) argoOnHub(k *checked) {
	if k.params == nil && k.image == "" { // the operator makes no ConfigMap
		return
	}
	namespaces := cmp.Or(k.argoFlags["application-namespaces"], k.params["application.namespaces"])
	if namespaces == "" && !k.settings.on("destination-based-mapping") {
		e.problem("argo cd", k.install.setNamespaces("argocd-server"),
			"argocd-server shows only Applications of its own namespace, not those of agents")
	} else {
		e.ok("argo cd", "argocd-server shows Applications of %s", cmp.Or(namespaces, "its own namespace"))
	}
	if k.argo["exec.enabled"] != "true" {
		e.note("argo cd", `exec sessions are disabled: exec.enabled in ConfigMap argocd-cm is not "true"`)
	}
}

// argoOnSpoke checks that the application controller reads the namespaces of the Applications: in destination mapping
// they have the namespaces of the hub.
func (e *checkRun) argoOnSpoke(k *checked) {
	if k.image == "" || !k.settings.on("destination-based-mapping") || k.settings.get("agent-mode") != "managed" {
		return
	}
	reads := strings.FieldsFunc(cmp.Or(k.argoFlags["application-namespaces"], k.params["application.namespaces"]), func(r rune) bool { return r == ',' || r == ' ' })
	var missing []string
	for allowed := range strings.FieldsFuncSeq(k.settings.get("allowed-namespaces"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.ContainsFunc(reads, func(pattern string) bool {
			matches, _ := path.Match(pattern, allowed)
			return matches || pattern == allowed
		}) {
			missing = append(missing, allowed)
		}
	}
	switch {
	case len(reads) == 0:
		e.problem("argo cd", k.install.setNamespaces("the application controller"),
			"the application controller reads only Applications of its own namespace, and destination mapping keeps the namespaces of the hub")
	case len(missing) > 0:
		e.problem("argo cd", "add them to application.namespaces in ConfigMap argocd-cmd-params-cm, and restart the application controller",
			"the application controller does not read Applications of %s, which --allowed-namespaces permits", strings.Join(missing, ", "))
	default:
		e.ok("argo cd", "the application controller reads Applications of %s", strings.Join(reads, ", "))
	}
}

// argoRedis checks that argocd-server uses the Redis proxy of the principal, which has the resource trees of agents.
func (e *checkRun) argoRedis(ctx context.Context, hub *cluster, k *checked) {
	if k.image == "" {
		return
	}
	server, err := hub.settings(ctx, k.install.server.name, "ARGOCD_SERVER_")
	if err != nil {
		e.skipped("redis", err)
		return
	}
	address := cmp.Or(server.flags["redis"], server.env["REDIS_SERVER"], k.params["redis.server"], redisService+":6379")
	if service := serviceOf(address); service == redisService || service == k.install.redis {
		e.warning("redis", k.install.setServerRedis(), "argocd-server uses %s directly and shows no resource trees of agents' Applications", address)
		return
	}
	e.ok("redis", "argocd-server uses %s", address)
}

// preservedFlag is the flag of the ApplicationSet controller with annotations that it does not remove.
const preservedFlag = "preserved-annotations"

// preserved checks a hub that has or had another hub of its group. Its Applications have annotations by which agents and the
// other hub recognize them, and an ApplicationSet takes over Applications of its name.
func (e *checkRun) preserved(ctx context.Context, hub *cluster, k *checked) {
	const check = "applicationsets"
	state, err := hub.configMap(ctx, hubstate.ConfigMap)
	if err != nil {
		e.skipped(check, err)
		return
	}
	if state == nil || k.install.unknown {
		return
	}
	controller, err := hub.applicationSets(ctx, k.install)
	if err != nil {
		e.skipped(check, err)
		return
	}
	if controller == nil {
		return
	}
	s, err := hub.settings(ctx, controller.name, "ARGOCD_APPLICATIONSET_CONTROLLER_GLOBAL_")
	if err != nil {
		e.skipped(check, err)
		return
	}
	known := commaList(s.get(preservedFlag))
	missing := slices.DeleteFunc(kind.PreservedAnnotations(), func(annotation string) bool { return slices.Contains(known, annotation) })
	if len(missing) > 0 {
		e.warning(check, k.install.setPreserved(strings.Join(missing, ",")),
			"after a promotion of this hub, the ApplicationSet controller removes annotations that agents and the other hub need from Applications")
		return
	}
	e.ok(check, "the ApplicationSet controller preserves the annotations of a promoted hub")
}

// fleet checks the registered agents.
func (e *checkRun) fleet(ctx context.Context, hub *cluster, k *checked) {
	list, err := (agents{hub}).list(ctx)
	if err != nil {
		e.skipped("agents", err)
		return
	}
	connected := 0
	for i := range list.Items {
		agent := &list.Items[i]
		if agent.Status.Connected {
			connected++
		}
		for _, condition := range agent.Status.Conditions {
			if condition.Type == "Registered" && condition.Status == metav1.ConditionFalse {
				e.problem("agents", "correct Agent "+agent.Name+", or the object that conflicts with it", "Agent %s is not accepted: %s", agent.Name, condition.Message)
			}
		}
		switch state := agentrows.StateOf(agent); {
		case state == agentrows.Disconnected:
			e.problem("agents", "argocd-agentctl doctor --agent-context …", "Agent %s is disconnected%s", agent.Name, e.program.sinceText(agent.Status.Since))
		case state == agentrows.WriteOutage:
			e.problem("agents", "repair the API server of that cluster; changes wait and are not lost", "Agent %s is connected, but its API server does not accept writes: %s",
				agent.Name, conditionMessage(agent, v1alpha1.ConditionWritable))
		case state == agentrows.Held:
			e.problem("agents", "argocd-agentctl pending "+agent.Name, "Agent %s has a hold that requires a confirmation", agent.Name)
		case agent.Status.Connected && agent.Status.Diverged > 0:
			e.warning("agents", "if it persists: argocd-agentctl pending "+agent.Name+"; argocd-agentctl diff "+agent.Name+" --agent-context …",
				"Agent %s has %s that differ between hub and cluster", agent.Name, pluralize(int(agent.Status.Diverged), "item"))
		}
		e.agentVersion(agent.Name, agent.Status.Version, k.settings.image)
	}
	e.ok("agents", "%d registered, %d connected", len(list.Items), connected)
	e.misplacedApplications(ctx, hub, list.Items, k.settings.on("destination-based-mapping"))
}

// agentVersion warns about versions that are not tested together.
func (e *checkRun) agentVersion(agent, version, image string) {
	if tag := tagOf(image); incompatible(version, tag) {
		e.warning("versions", "upgrade the older one", "agent %s is %s and the principal is %s: a difference of more than two minor versions is not tested", agent, version, tag)
	}
}

// tagOf returns the tag of an image, which is the version for releases.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	last := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return tag
}

// incompatible reports whether two versions are not tested together. Unknown versions are compatible.
func incompatible(version, other string) bool {
	a, okA := minor(version)
	b, okB := minor(other)
	return okA && okB && (a[0] != b[0] || max(a[1], b[1])-min(a[1], b[1]) > 2)
}

// minor parses major and minor version.
func minor(version string) ([2]int, bool) {
	var v [2]int
	n, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &v[0], &v[1])
	return v, n == 2 && err == nil
}

// compareSides checks what must be equal on both sides.
func (p *Program) compareSides(ctx context.Context, hub, spoke *cluster, h, s *checked) []finding {
	e := &checkRun{program: p, cluster: "both sides"}
	e.sameAuthority(h.bundle, s.bundle)
	e.clock(h.skew-s.skew, "the clocks of the clusters")
	if s.agent != "" {
		e.registration(ctx, hub, spoke, h, s)
	}
	e.sameArgo(h, s)
	return e.found
}

// registration compares the Agent with the settings of the agent.
func (e *checkRun) registration(ctx context.Context, hub, spoke *cluster, h, s *checked) {
	agent, err := (agents{hub}).get(ctx, s.agent)
	if err != nil {
		if !h.settings.selfRegistration() {
			e.problem("agent", "argocd-agentctl agent create "+s.agent+" --mode …", "the certificate is for agent %s, which is not registered, and the hub requires registration", s.agent)
		} else {
			e.note("agent", "the certificate is for agent %s, which will be registered on its first connection", s.agent)
		}
		return
	}
	e.ok("agent", "%s by its certificate, %s", agent.Name, agentrows.StateOf(agent))
	if uid, err := spoke.uid(ctx); err == nil && agent.Status.ClusterUID != "" && agent.Status.ClusterUID != uid {
		e.problem("agent", "give this cluster another agent name; or, if it replaces the other cluster, confirm it: argocd-agentctl pending", "%s is registered for cluster %s, but this cluster is %s", agent.Name, agent.Status.ClusterUID, uid)
	}
	if mode := s.settings.get("agent-mode"); mode != "" && agent.Spec.Mode != "" && mode != agent.Spec.Mode {
		e.problem("mode", "set ARGOCD_AGENT_MODE on the cluster to "+agent.Spec.Mode+", or suspend the agent, change its mode on the hub, and resume it", "%s is registered as %s, but the agent runs as %s", agent.Name, agent.Spec.Mode, mode)
	}
	onHub := cmp.Or(agent.Spec.Mapping, map[bool]string{true: "destination", false: "namespace"}[h.settings.on("destination-based-mapping")])
	onSpoke := map[bool]string{true: "destination", false: "namespace"}[s.settings.on("destination-based-mapping")]
	if s.settings.installed && agent.Spec.Mode != "autonomous" {
		if onHub != onSpoke {
			e.problem("mapping", "use the same --destination-based-mapping on both sides, or set spec.mapping of Agent "+agent.Name, "the hub maps by %s, the agent by %s", onHub, onSpoke)
		} else {
			e.ok("mapping", "by %s on both sides", onHub)
		}
	}
}

// sameArgo compares settings of Argo CD that must be equal.
func (e *checkRun) sameArgo(h, s *checked) {
	if h.argo == nil || s.argo == nil {
		return
	}
	for _, one := range []struct{ key, standard string }{
		{"application.resourceTrackingMethod", "annotation"}, {"application.instanceLabelKey", "app.kubernetes.io/instance"},
	} {
		a, b := cmp.Or(h.argo[one.key], one.standard), cmp.Or(s.argo[one.key], one.standard)
		if a != b {
			e.problem("argo cd", "use the same "+one.key+" in ConfigMap argocd-cm on both sides", "%s is %q on the hub and %q on the cluster, so the hub does not recognize the resources of an Application", one.key, a, b)
		} else {
			e.ok("argo cd", "%s is %s on both sides", one.key, a)
		}
	}
	a, b := cmp.Or(h.params["redis.compression"], "gzip"), cmp.Or(s.params["redis.compression"], "gzip")
	if compression := cmp.Or(h.settings.get("redis-compression-type"), "gzip"); compression != a {
		e.problem("compression", "set --redis-compression-type of the principal to "+a, "Argo CD on the hub compresses with %s, the principal with %s", a, compression)
	} else if a != b {
		e.note("compression", "%s on the hub and %s on the cluster. The principal converts between them", a, b)
	}
	if keys := customized(h.argo, s.argo, h.controller); len(keys) > 0 {
		e.warning("argo cd", "use the same values in ConfigMap argocd-cm on both sides: the hub computes diffs and actions, the cluster computes health", "resource customizations differ: %s", strings.Join(keys, ", "))
	} else {
		e.ok("argo cd", "resource customizations are equal on both sides")
	}
}

// ofController reports whether only the application controller uses a setting.
func ofController(key string) bool {
	return strings.HasPrefix(key, "resource.customizations.ignoreResourceUpdates.") ||
		slices.Contains([]string{"resource.exclusions", "resource.inclusions", "resource.ignoreResourceUpdatesEnabled", "resource.compareoptions", "resource.respectRBAC"}, key)
}

// customized lists the resource customizations that differ. If the hub has no application controller, settings of the
// controller are ignored.
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
