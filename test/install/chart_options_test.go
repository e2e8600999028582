package install

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// field returns a nested field of an object as text.
func field(t *testing.T, object *unstructured.Unstructured, path ...string) string {
	t.Helper()
	if object == nil {
		t.Fatalf("there is no object with %v", path)
	}
	value, _, err := unstructured.NestedString(object.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Labels that change with the release are on all objects, but not on pods, which they would restart.
func TestChart_StandardLabels(t *testing.T) {
	for _, role := range []string{onHub, onSpoke} {
		all := objects(t, render(t, role, "commonLabels.team=web"))
		for key, object := range all {
			if object.GetKind() == "CustomResourceDefinition" {
				continue // generated from the types
			}
			labels := object.GetLabels()
			for _, label := range append(slices.Clone(releaseLabels), "app.kubernetes.io/name", "app.kubernetes.io/component") {
				if labels[label] == "" {
					t.Errorf("%s has no label %s", key, label)
				}
			}
			if labels["team"] != "web" {
				t.Errorf("%s lacks the common label", key)
			}
		}
		pods := deployment(t, all).Spec.Template.Labels
		for _, label := range releaseLabels {
			if pods[label] != "" {
				t.Errorf("pods have label %s, which restarts them", label)
			}
		}
	}
}

func TestChart_ExistingServiceAccount(t *testing.T) {
	for _, role := range []string{everything["principal"][0] + "," + everything["principal"][1], everything["agent"][0] + "," + everything["agent"][1] + ",agent.live.callers.mode=record,agent.live.serviceAccounts={a/b}",
		onHub + ",principal.settings.namespaced=true,principal.settings.allowed-namespaces=w1"} {
		all := objects(t, render(t, role, "serviceAccount.create=false,serviceAccount.name=mine"))
		if got := deployment(t, all).Spec.Template.Spec.ServiceAccountName; got != "mine" {
			t.Errorf("pods use %s", got)
		}
		bindings := 0
		for key, object := range all {
			if object.GetKind() == "ServiceAccount" {
				t.Errorf("%s is created", key)
			}
			subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
			for _, subject := range subjects {
				if name := subject.(map[string]any)["name"]; name != "mine" && name != "argocd-agent-agent-restore" {
					t.Errorf("%s binds %v", key, name)
				}
				bindings++
			}
		}
		if bindings < 3 {
			t.Errorf("only %d bindings", bindings)
		}
		for key, object := range objects(t, render(t, role, "rbac.create=false")) {
			if strings.HasPrefix(object.GetAPIVersion(), "rbac.") {
				t.Errorf("%s is created without rbac.create", key)
			}
		}
	}
}

// Each way to the principal passes TLS through to the port of the Service.
func TestChart_PrincipalIsReachableByPassthrough(t *testing.T) {
	all := objects(t, render(t, onHub, "principal.service.port=8443",
		"principal.tlsRoute.enabled=true,principal.tlsRoute.hostnames={hub.example.com},principal.tlsRoute.parentRefs[0].name=gateway",
		"principal.route.enabled=true,principal.route.host=hub.example.com",
		`principal.ingress.enabled=true,principal.ingress.className=nginx,principal.ingress.host=hub.example.com,principal.ingress.annotations.nginx\.ingress\.kubernetes\.io/ssl-passthrough=yes`))
	const service = "argocd-agent-principal"
	tls := all["TLSRoute/"+service]
	rules, _, err := unstructured.NestedSlice(tls.Object, "spec", "rules")
	if err != nil || len(rules) != 1 {
		t.Fatalf("rules %v: %v", rules, err)
	}
	backend := rules[0].(map[string]any)["backendRefs"].([]any)[0].(map[string]any)
	if backend["name"] != service || fmt.Sprint(backend["port"]) != "8443" {
		t.Errorf("the TLSRoute leads to %v", backend)
	}
	route := all["Route/"+service]
	if field(t, route, "spec", "tls", "termination") != "passthrough" || field(t, route, "spec", "to", "name") != service || field(t, route, "spec", "host") != "hub.example.com" {
		t.Errorf("route %v", route.Object["spec"])
	}
	ingress := all["Ingress/"+service]
	if ingress.GetAnnotations()["nginx.ingress.kubernetes.io/ssl-passthrough"] != "yes" || field(t, ingress, "spec", "ingressClassName") != "nginx" {
		t.Errorf("ingress %v", ingress.Object)
	}
	ports, _, err := unstructured.NestedSlice(all["Service/"+service].Object, "spec", "ports")
	if err != nil || ports[0].(map[string]any)["name"] != "agents" {
		t.Errorf("ports %v, %v: Route and Ingress name port agents", ports, err)
	}
	for values, reason := range map[string]string{
		"principal.ingress.enabled=true,principal.ingress.host=h":                "pass TLS through",
		"principal.tlsRoute.enabled=true":                                        "requires hostnames and parentRefs",
		"principal.autoscaling.enabled=true,principal.autoscaling.minReplicas=9": "greater than maxReplicas",
		"serviceAccount.create=false":                                            "serviceAccount.name is missing",
	} {
		if _, refusal := helm(t, onHub, values); !strings.Contains(refusal, reason) {
			t.Errorf("%s: %q, want %q", values, refusal, reason)
		}
	}
}

// An autoscaler and a fixed number of replicas would fight.
func TestChart_AutoscalerOwnsReplicas(t *testing.T) {
	all := objects(t, render(t, onHub, "principal.replicas=3,principal.autoscaling.enabled=true,principal.autoscaling.targetMemoryUtilizationPercentage=70"))
	if replicas := deployment(t, all).Spec.Replicas; replicas != nil {
		t.Errorf("the Deployment sets %d replicas", *replicas)
	}
	scaler := all["HorizontalPodAutoscaler/argocd-agent-principal"]
	metrics, _, err := unstructured.NestedSlice(scaler.Object, "spec", "metrics")
	if err != nil || len(metrics) != 2 || field(t, scaler, "spec", "scaleTargetRef", "name") != "argocd-agent-principal" {
		t.Errorf("autoscaler %v: %v", scaler.Object["spec"], err)
	}
	if objects(t, render(t, onSpoke, "principal.autoscaling.enabled=true"))["HorizontalPodAutoscaler/argocd-agent-agent"] != nil {
		t.Error("an agent is scaled")
	}
}

func TestChart_PodOptions(t *testing.T) {
	all := objects(t, render(t, onSpoke, "dnsPolicy=None,dnsConfig.nameservers={10.0.0.1},hostAliases[0].ip=10.0.0.2,hostAliases[0].hostnames={hub.example.com}",
		"podSecurityContext.runAsUser=1000,securityContext.runAsGroup=2000,readinessProbe.periodSeconds=7,livenessProbe.failureThreshold=9,deploymentAnnotations.a=b"))
	d := deployment(t, all)
	pod, container := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	if pod.DNSPolicy != "None" || pod.DNSConfig.Nameservers[0] != "10.0.0.1" || pod.HostAliases[0].Hostnames[0] != "hub.example.com" {
		t.Errorf("DNS %v %v %v", pod.DNSPolicy, pod.DNSConfig, pod.HostAliases)
	}
	if *pod.SecurityContext.RunAsUser != 1000 || !*pod.SecurityContext.RunAsNonRoot || *container.SecurityContext.RunAsGroup != 2000 || *container.SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("security contexts %v %v", pod.SecurityContext, container.SecurityContext)
	}
	if container.ReadinessProbe.PeriodSeconds != 7 || container.LivenessProbe.FailureThreshold != 9 || container.LivenessProbe.PeriodSeconds != 10 || container.LivenessProbe.HTTPGet.Path != "/livez" {
		t.Errorf("probes %v %v", container.ReadinessProbe, container.LivenessProbe)
	}
	if d.Annotations["a"] != "b" {
		t.Errorf("annotations %v", d.Annotations)
	}
}

func TestChart_ServiceMonitorRelabels(t *testing.T) {
	monitor := objects(t, render(t, onHub, "serviceMonitor.enabled=true,serviceMonitor.scrapeTimeout=9s",
		"serviceMonitor.relabelings[0].targetLabel=hub,serviceMonitor.relabelings[0].replacement=eu,serviceMonitor.metricRelabelings[0].action=drop"))["ServiceMonitor/argocd-agent-principal"]
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := endpoints[0].(map[string]any)
	if endpoint["scrapeTimeout"] != "9s" || endpoint["relabelings"].([]any)[0].(map[string]any)["targetLabel"] != "hub" || endpoint["metricRelabelings"].([]any)[0].(map[string]any)["action"] != "drop" {
		t.Errorf("endpoint %v", endpoint)
	}
}

// The alerts use metrics that exist, and are those that the page about operations recommends.
func TestChart_Alerts(t *testing.T) {
	rule := objects(t, render(t, onHub, "prometheusRule.enabled=true,prometheusRule.labels.release=prometheus"))["PrometheusRule/argocd-agent-principal"]
	if rule.GetLabels()["release"] != "prometheus" {
		t.Errorf("labels %v", rule.GetLabels())
	}
	text, err := yaml.Marshal(rule.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	known := read(t, "../../docs/reference/metrics.md")
	var expressions []string
	for _, r := range spec.Groups[0].Rules {
		metric := regexp.MustCompile(`argocd_agent_\w+`).FindString(r.Expr)
		if metric == "" || !strings.Contains(known, "`"+metric+"`") || r.Annotations["summary"] == "" {
			t.Errorf("alert %+v", r)
		}
		expressions = append(expressions, r.Expr)
	}
	_, table, _ := strings.Cut(read(t, "../../docs/operations.md"), "\n### Alerts\n")
	table, _, _ = strings.Cut(table, "\n### ")
	recommended := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if len(recommended) != len(expressions) {
		t.Errorf("%d alerts, and the page has %d", len(expressions), len(recommended))
	}
	for _, want := range recommended {
		if !slices.ContainsFunc(expressions, func(e string) bool { return strings.HasPrefix(e, want[1]) }) {
			t.Errorf("no alert for %s", want[1])
		}
	}
}

// The sidecar of Grafana loads ConfigMaps by label. The module test/monitoring checks the queries.
func TestChart_Dashboards(t *testing.T) {
	const on = "dashboards.enabled=true,dashboards.annotations.grafana_folder=Hub"
	all := objects(t, render(t, onHub, on))
	for _, name := range []string{"fleet", "agent"} {
		board := all["ConfigMap/argocd-agent-principal-dashboard-"+name]
		text := field(t, board, "data", "argocd-agent-"+name+".json")
		if text != read(t, chart, "files/dashboards", name+".json") {
			t.Errorf("%s differs from its file", name)
		}
		if board.GetLabels()["grafana_dashboard"] != "1" || board.GetAnnotations()["grafana_folder"] != "Hub" {
			t.Errorf("%s: labels %v, annotations %v", name, board.GetLabels(), board.GetAnnotations())
		}
	}
	for _, values := range [][]string{{onHub}, {onSpoke, on}} {
		for key := range objects(t, render(t, values...)) {
			if strings.Contains(key, "dashboard") {
				t.Errorf("%v: %s", values, key)
			}
		}
	}
}

// The page about installations of Argo CD gives the names of their Redis, Secret and pods.
func TestChart_ArgoCDInstallations(t *testing.T) {
	page := read(t, "../../docs/argocd-installations.md")
	for name, tc := range map[string]struct{ values, address, secret, key, redis, server string }{
		"manifests": {"", "argocd-redis:6379", "argocd-redis", "", "argocd-redis", "argocd-server"},
		"HA": {"redis.address=argocd-redis-ha-haproxy:6379,argocd.redis=argocd-redis-ha-haproxy", "argocd-redis-ha-haproxy:6379", "argocd-redis", "",
			"argocd-redis-ha-haproxy", "argocd-server"},
		"operator": {"redis.address=openshift-gitops-redis:6379,redis.secretName=openshift-gitops-redis-initial-password,redis.secretKey=admin.password,argocd.server=openshift-gitops-server,argocd.redis=openshift-gitops-redis",
			"openshift-gitops-redis:6379", "openshift-gitops-redis-initial-password", "admin.password", "openshift-gitops-redis", "openshift-gitops-server"},
	} {
		t.Run(name, func(t *testing.T) {
			for value := range strings.SplitSeq(tc.values, ",") {
				if value != "" && !strings.Contains(page, "--set "+value+" ") && !strings.Contains(page, "--set "+value+"\n") {
					t.Errorf("the page does not set %s", value)
				}
			}
			all := objects(t, render(t, onHub, tc.values))
			if got := field(t, all["ConfigMap/argocd-agent-params"], "data", "ARGOCD_PRINCIPAL_REDIS_SERVER_ADDRESS"); got != tc.address {
				t.Errorf("Redis at %s, want %s", got, tc.address)
			}
			volume := deployment(t, all).Spec.Template.Spec.Volumes[0].Secret
			if volume.SecretName != tc.secret || (tc.key == "") != (len(volume.Items) == 0) {
				t.Errorf("password from %+v", volume)
			}
			if tc.key != "" && (volume.Items[0].Key != tc.key || volume.Items[0].Path != "auth") {
				t.Errorf("password from key %+v, which the principal does not read", volume.Items)
			}
			selectors, _, _ := unstructured.NestedSlice(all["NetworkPolicy/argocd-agent-principal-redis"].Object, "spec", "podSelector", "matchExpressions")
			if len(selectors) != 1 || !slices.Contains(selectors[0].(map[string]any)["values"].([]any), any(tc.redis)) {
				t.Errorf("the NetworkPolicy opens %v, want %s", selectors, tc.redis)
			}
			text, err := yaml.Marshal(all["NetworkPolicy/argocd-agent-principal"].Object)
			if err != nil || !strings.Contains(string(text), "app.kubernetes.io/name: "+tc.server+"\n") {
				t.Errorf("%s cannot use the proxies: %s", tc.server, text)
			}
		})
	}
}
