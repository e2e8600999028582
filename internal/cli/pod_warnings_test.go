package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/lab"
)

// The test serves the health output of principal and agent during a write outage at the addresses of pods.
func TestWriteOutage_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-write-outage")
	s.now = time.Now
	s.replace[`(?m)^  (ok|note|warning|problem) +(api server|clock|crds|deployment|argo cd|rbac|CA|certificate|redis) .*\n( +→.*\n)?`] = ""
	s.replace[`(?m)^\d+ ok, .*`] = "COUNTS"
	s.replace[`since 20\S+ \(\w+\)`] = "since DATE"
	address := s.localAddress(t)
	var outage error
	probes := observe.Probes(observe.Check{Name: "objects", Run: func() error { return nil }},
		observe.Check{Name: "connections", Run: func() error { return outage }}, // also if it is not ready
		observe.Check{Name: "writes", WarnOnly: true, Run: func() error { return outage }})
	server := httptest.NewUnstartedServer(probes)
	server.Listener = s.listen(t, address)
	server.Start()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, place := range []struct{ cluster, component string }{{"hub", principalDeployment}, {"managed", agentDeployment}} {
		s.pod(t, l.Cluster(place.cluster), place.component, address, port)
	}
	s.commands["outage"] = func(text string) string {
		if outage = nil; text != "" {
			outage = errors.New(text)
		}
		return ""
	}
	s.play("write-outage.txt")
}

// localAddress returns an address that the API server proxies requests to. It refuses loopback addresses.
func (s *script) localAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if ip, _, err := net.ParseCIDR(one.String()); err == nil && ip.IsGlobalUnicast() && ip.To4() != nil {
			return ip.String()
		}
	}
	t.Skip("this machine has only loopback addresses, which the API server does not proxy to")
	return ""
}

func (s *script) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pod creates a pod that is never scheduled, so that its address does not change.
func (s *script) pod(t *testing.T, c *lab.Cluster, component, address, port string) {
	t.Helper()
	const namespace = "cli-write-outage"
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	lab.Await(t, "a pod", func(ctx context.Context) error {
		return c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-0, namespace: %s, labels: {app.kubernetes.io/part-of: argocd-agent, app.kubernetes.io/component: %s}}
spec:
  schedulingGates: [{name: example.com/never}]
  containers: [{name: main, image: example.com/none, ports: [{name: healthz, containerPort: %s}]}]
`, component, namespace, strings.TrimPrefix(component, "argocd-agent-"), port))
	})
	patch(t, c, pods, namespace, component+"-0", `{"status":{"phase":"Running","podIP":"`+address+`","podIPs":[{"ip":"`+address+`"}]}}`, "status")
}

// Requests through the API server must pass our own NetworkPolicies.
func TestNetworkPolicies_AllowHealthRequests(t *testing.T) {
	for _, role := range []string{"principal", "agent"} {
		content, err := os.ReadFile("../../install/kustomize/" + role + "/networkpolicies.yaml")
		if err != nil {
			t.Fatal(err)
		}
		open := false
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var policy networkingv1.NetworkPolicy
			if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
				t.Fatal(err)
			}
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					open = open || policy.Name == "argocd-agent-"+role && len(rule.From) == 0 && port.Port.String() == "healthz"
				}
			}
		}
		if !open {
			t.Errorf("the policy of %s blocks the health port", role)
		}
	}
}
