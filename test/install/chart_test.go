package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

// valueSets are values of users. Each is rendered here, and applied to a real API server in TestInstalled.
var valueSets = map[string][]string{
	"hub":                {onHub},
	"hub, all":           {everything["principal"][0], everything["principal"][1], "principal.replicas=3", "principal.service.type=LoadBalancer", `principal.service.annotations.a\.b/c=d`, "principal.service.loadBalancerSourceRanges={10.0.0.0/8}", "priorityClassName=system-cluster-critical"},
	"hub, ports":         {onHub, "principal.settings.listen-port=9443,principal.settings.metrics-port=9000,principal.settings.redis-proxy-port=0,principal.settings.enable-resource-proxy=false"},
	"hub, nothing extra": {onHub, "networkPolicy.enabled=false,podDisruptionBudget.enabled=false,crds.install=false", "redis.secretName=", "principal.settings.metrics-port=0,principal.settings.healthz-port=0"},
	"hub, scaled": {onHub, "dashboards.enabled=true", "principal.autoscaling.enabled=true,principal.autoscaling.targetMemoryUtilizationPercentage=70,deploymentAnnotations.a=b,commonLabels.team=web",
		`principal.ingress.enabled=true,principal.ingress.host=hub.example.com,principal.ingress.annotations.a\.b/passthrough=yes`},
	"spoke":              {onSpoke},
	"spoke, own account": {onSpoke, "serviceAccount.create=false,serviceAccount.name=mine,rbac.create=false,dnsPolicy=None,dnsConfig.nameservers={10.0.0.1},hostAliases[0].ip=10.0.0.2,hostAliases[0].hostnames={hub.example.com}"},
	"spoke, all":         {everything["agent"][0], everything["agent"][1], "agent.live.extraGroups={cert-manager.io}"},
	"spoke, autonomous":  {"role=agent,agent.mode=autonomous,agent.server=10.1.2.3,agent.port=8443", "agent.settings.allowed-namespaces={team-*,web}"},
	"spoke, accounts":    {onSpoke, "agent.live.serviceAccounts={default/deployer,kube-system/other}"},
	"spoke, records":     {onSpoke, "agent.live.callers.mode=record"},
	"spoke, users":       {onSpoke, "agent.live.callers.mode=impersonate,agent.live.callers.users={alice},agent.live.callers.groups={dev}"},
	"spoke, shared":      {onSpoke, "agent.shared=true"},
	"spoke, silent":      {onSpoke, "agent.live.read=false,agent.live.write=false", "networkPolicy.egress[0].to[0].ipBlock.cidr=0.0.0.0/0"},
	"spoke, its place": {onSpoke, "image.digest=sha256:" + strings.Repeat("ab", 32), "imagePullSecrets[0].name=pull", `nodeSelector.kubernetes\.io/os=linux`, "tolerations[0].operator=Exists",
		"extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy:3128", "extraVolumes[0].name=x,extraVolumes[0].emptyDir.medium=Memory,extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath=/x"},
}

func TestChart_RendersAllValueCombinations(t *testing.T) {
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, values...))
			if len(all) < 4 {
				t.Errorf("only %d objects", len(all))
			}
			deployment := deployment(t, all)
			for _, problem := range unrestricted(deployment) {
				t.Error(problem)
			}
			for key, object := range all {
				if object.GetLabels()["app.kubernetes.io/part-of"] != "argocd-agent" {
					t.Errorf("%s does not say what it is part of", key)
				}
			}
		})
	}
}

func deployment(t testing.TB, all map[string]*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	for _, object := range all {
		if object.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, d, true); err != nil {
				t.Fatalf("the Deployment: %v", err)
			}
			return d
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

// unrestricted lists what a Deployment lacks in addition to Pod Security, which a real API server checks.
func unrestricted(d *appsv1.Deployment) (problems []string) {
	container := d.Spec.Template.Spec.Containers[0]
	if s := container.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		problems = append(problems, "the root file system can be written to")
	}
	if d.Spec.Template.Spec.EnableServiceLinks == nil || *d.Spec.Template.Spec.EnableServiceLinks {
		problems = append(problems, "variables of Services can be taken for settings")
	}
	if container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero() {
		problems = append(problems, "resources are not bounded")
	}
	hasPort := slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == "healthz" })
	if hasPort != (container.ReadinessProbe != nil && container.LivenessProbe != nil) {
		problems = append(problems, "probes and the port for them do not go together")
	}
	return problems
}

func TestChart_ImageDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, tc := range []struct{ values, want string }{
		{"image.repository=r", "r:" + appVersion(t)},
		{"image.repository=r,image.tag=v9", "r:v9"},
		{"image.repository=r,image.digest=" + digest, "r@" + digest},
	} {
		if got := deployment(t, objects(t, render(t, onHub, tc.values))).Spec.Template.Spec.Containers[0].Image; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.values, got, tc.want)
		}
	}
}

func appVersion(t testing.TB) string {
	t.Helper()
	var meta struct{ AppVersion string }
	if err := yaml.Unmarshal([]byte(read(t, chart, "Chart.yaml")), &meta); err != nil {
		t.Fatal(err)
	}
	return meta.AppVersion
}

// Every setting is written with the environment variable of its flag.
func TestChart_SettingsBecomeVariables(t *testing.T) {
	for _, tc := range []struct{ values, variable, want string }{
		{onSpoke, "ARGOCD_AGENT_MODE", "managed"},
		{onSpoke, "ARGOCD_AGENT_REMOTE_SERVER", "principal.example.com"},
		{onSpoke + ",agent.server={hub.example.com,standby.example.com}", "ARGOCD_AGENT_REMOTE_SERVER", "hub.example.com,standby.example.com"},
		{onSpoke + ",agent.port=8443", "ARGOCD_AGENT_REMOTE_PORT", "8443"},
		{onSpoke, "ARGOCD_AGENT_RESOURCE_PROXY_EXEC", "false"},
		{onSpoke, "ARGOCD_AGENT_RESOURCE_PROXY_CALLERS", ""},
		{onSpoke + ",agent.live.callers.mode=record", "ARGOCD_AGENT_RESOURCE_PROXY_CALLERS", "record"},
		{onSpoke, "REDIS_CREDS_DIR_PATH", "/etc/argocd-agent/redis"},
		{onSpoke + ",agent.settings.insecure-tls=true", "ARGOCD_AGENT_TLS_INSECURE", "true"},
		{onSpoke + ",agent.settings.allowed-namespaces={a,b}", "ARGOCD_AGENT_ALLOWED_NAMESPACES", "a,b"},
		{onHub + ",principal.settings.namespace-create-enable=true,principal.settings.namespace-create-labels.team=web", "ARGOCD_PRINCIPAL_NAMESPACE_CREATE_LABELS", "team=web"},
		{onHub + ",principal.settings.metrics-port=18000", "ARGOCD_PRINCIPAL_METRICS_PORT", "18000"},
		{onHub + ",principal.settings.keepalive-min-interval=1m", "ARGOCD_PRINCIPAL_KEEPALIVE_MIN_INTERVAL", "1m"},
	} {
		data, _, _ := unstructured.NestedStringMap(objects(t, render(t, tc.values))["ConfigMap/argocd-agent-params"].Object, "data")
		if data[tc.variable] != tc.want {
			t.Errorf("%s: %s is %q, want %q", tc.values, tc.variable, data[tc.variable], tc.want)
		}
	}
}

func TestChart_SettingsRestartPods(t *testing.T) {
	of := func(values ...string) string {
		return deployment(t, objects(t, render(t, values...))).Spec.Template.Annotations[checksum]
	}
	if of(onHub) == "" || of(onHub) == of(onHub, "principal.settings.log-level=debug") {
		t.Error("another setting does not make other pods")
	}
}

// Clusters without Prometheus Operator do not have the kind.
func TestChart_ServiceMonitorIsOptional(t *testing.T) {
	for _, role := range []string{onHub, onSpoke} {
		const off, on = "serviceMonitor.enabled=false", "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus"
		without, with := objects(t, render(t, role, off)), objects(t, render(t, role, on))
		name := deployment(t, with).Name
		if without["ServiceMonitor/"+name] != nil || with["ServiceMonitor/"+name] == nil {
			t.Fatalf("%s: the ServiceMonitor is not there when it is asked for, and only then", role)
		}
		if with["ServiceMonitor/"+name].GetLabels()["release"] != "prometheus" {
			t.Error("its labels do not arrive, by which Prometheus finds it")
		}
		ports, _, _ := unstructured.NestedSlice(with["Service/"+name+"-metrics"].Object, "spec", "ports")
		if len(ports) != 1 || ports[0].(map[string]any)["name"] != "metrics" {
			t.Errorf("%s: the Service has ports %v, not the one that is looked for", role, ports)
		}
	}
}

// Invalid values are rejected with a reason and a fix.
func TestChart_RejectsInvalidValues(t *testing.T) {
	for _, tc := range []struct{ values, reason string }{
		{"", "set role=principal on the hub, or role=agent on a workload cluster"},
		{"role=both", "'/role': value must be one of '', 'principal', 'agent'"},
		{"role=agent,agent.server=h", "agent.mode is missing: set agent.mode=managed"},
		{"role=agent,agent.mode=manged,agent.server=h", "'/agent/mode': value must be one of '', 'managed', 'autonomous'"},
		{"role=agent,agent.mode=managed", "agent.server is missing: set it to the host name"},
		{onSpoke + ",agent.server=https://hub", "'/agent/server': 'https://hub' does not match"},
		{onSpoke + ",agent.server=hub:443", "'/agent/server': 'hub:443' does not match"},
		{onSpoke + ",agent.server={hub,https://other}", "'/agent/server/1': 'https://other' does not match"},
		{onSpoke + ",agent.server={hub,hub}", "'/agent/server': items at 0 and 1 are equal"},
		{onSpoke + ",agent.joinToken=join://hub/w1/PIN/ID.SECRET", "additional properties 'joinToken' not allowed"},
		{onSpoke + ",agent.port=70000", "'/agent/port': maximum: got 70,000, want 65,535"},
		{onSpoke + ",agent.sever=x", "additional properties 'sever' not allowed"},
		{onSpoke + ",agent.settings.no-such-flag=x", "'/agent/settings': additional properties 'no-such-flag' not allowed"},
		{onSpoke + ",agent.settings.redis-password=x", "additional properties 'redis-password' not allowed"},
		{onSpoke + ",agent.settings.log-level=loud", "'/agent/settings/log-level': 'loud' does not match pattern"},
		{onSpoke + ",agent.settings.log-format=loud", "'/agent/settings/log-format': value must be one of 'text', 'json'"},
		{onSpoke + ",agent.settings.keep-alive-ping-interval=often", "'/agent/settings/keep-alive-ping-interval': 'often' does not match"},
		{onSpoke + ",agent.settings.agent-mode=managed", "set agent.mode instead"},
		{onSpoke + ",agent.mode=autonomous,agent.settings.destination-based-mapping=true", "is not supported with agent.mode=autonomous"},
		{onSpoke + ",agent.live.callers.mode=impersonate", "agent.live.callers.users is missing"},
		{onSpoke + ",agent.settings.resource-proxy-callers=record", "set agent.live.callers.mode instead"},
		{onSpoke + ",agent.live.callers.mode=trust", "value must be one of 'ignore', 'record', 'impersonate'"},
		{onSpoke + ",agent.live.serviceAccounts={deployer}", "'/agent/live/serviceAccounts/0': 'deployer' does not match"},
		{onSpoke + ",agent.live.read=false,agent.live.secrets=true", "agent.live.secrets requires agent.live.read"},
		{onSpoke + ",agent.live.extraGroups={*}", "'/agent/live/extraGroups/0': '*' does not match"},
		{onHub + ",principal.replicas=0", "'/principal/replicas': minimum: got 0, want 1"},
		{onHub + ",principal.service.type=Ingress", "'/principal/service/type': value must be one of"},
		{onHub + ",principal.settings.namespaced=true", "principal.settings.allowed-namespaces is missing"},
		{onHub + ",principal.settings.namespaced=true,principal.settings.allowed-namespaces=w1,principal.settings.destination-based-mapping=true", "is not supported with principal.settings.namespaced=true"},
		{onHub + ",image.digest=latest", "'/image/digest': 'latest' does not match"},
		{onHub + ",image.tag=v1,image.digest=sha256:" + strings.Repeat("0", 64), "image.digest and image.tag are mutually exclusive"},
		{onHub + ",nonsense=1", "additional properties 'nonsense' not allowed"},
	} {
		if _, refusal := helm(t, tc.values); !strings.Contains(refusal, tc.reason) {
			t.Errorf("%q: %q, want %q in it", tc.values, refusal, tc.reason)
		}
	}
}

func TestChart_PackagesAndLints(t *testing.T) {
	helm := lab.Tool(t, "helm")
	for _, values := range []string{onHub, onSpoke} {
		if _, errOut := run(t, helm, "lint", chart, "--strict", "--set", values, "--kube-version", "1.35.0"); errOut != "" {
			t.Error(errOut)
		}
	}
	out := t.TempDir()
	if _, errOut := run(t, helm, "package", chart, "--destination", out); errOut != "" {
		t.Fatal(errOut)
	}
	packaged, err := filepath.Glob(out + "/argocd-agent-*.tgz")
	if err != nil || len(packaged) != 1 {
		t.Fatalf("packaged: %v %v", packaged, err)
	}
	rendered, errOut := run(t, helm, "template", "argocd-agent", packaged[0], "--namespace", "argocd", "--kube-version", "1.35.0", "--set", onHub)
	if errOut != "" || objects(t, rendered)["CustomResourceDefinition/agents.argocd-agent.argoproj-labs.io"] == nil {
		t.Errorf("the package lacks the custom resource: %s", errOut)
	}
}

// values.yaml and the schema have the same values.
func TestChart_SchemaHasEveryValue(t *testing.T) {
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, chart, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, problem := range sameKeys("", values, schema) {
		t.Error(problem)
	}
}

func sameKeys(path string, values, schema map[string]any) (problems []string) {
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return nil // any keys
	}
	for key, value := range values {
		inner, _ := properties[key].(map[string]any)
		if inner == nil {
			problems = append(problems, fmt.Sprintf("the schema lacks %s%s", path, key))
			continue
		}
		if deeper, ok := value.(map[string]any); ok {
			problems = append(problems, sameKeys(path+key+".", deeper, inner)...)
		}
	}
	for key := range properties {
		if _, there := values[key]; !there && key != "global" && path != "resources." {
			problems = append(problems, fmt.Sprintf("values.yaml lacks %s%s", path, key))
		}
	}
	return problems
}
