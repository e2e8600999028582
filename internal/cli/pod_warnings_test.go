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

// TestTroubleIsTold has programs behind pods' addresses that say what they say while their API server takes no writes.
func TestTroubleIsTold(t *testing.T) {
	s, l := inLab(t, "cli-trouble")
	s.now = time.Now
	s.replace[`(?m)^  (ok|note|warning|problem) +(api server|clock|definitions|program|argo cd|rights|CA|certificate|redis) .*\n( +→.*\n)?`] = ""
	s.replace[`(?m)^\d+ ok, .*`] = "COUNTS"
	s.replace[`since 20\S+ \(\w+\)`] = "since DATE"
	address := s.addressOfThisMachine(t)
	var trouble error
	probes := observe.Probes(observe.Check{Name: "objects", Run: func() error { return nil }},
		observe.Check{Name: "connections", Run: func() error { return trouble }}, // also of one that is not ready
		observe.Check{Name: "writes", WarnOnly: true, Run: func() error { return trouble }})
	program := httptest.NewUnstartedServer(probes)
	program.Listener = s.listen(t, address)
	program.Start()
	t.Cleanup(program.Close)
	_, port, _ := net.SplitHostPort(program.Listener.Addr().String())
	for _, place := range []struct{ cluster, program string }{{"hub", principalDeployment}, {"managed", agentDeployment}} {
		s.pod(t, l.Cluster(place.cluster), place.program, address, port)
	}
	s.commands["trouble"] = func(text string) string {
		if trouble = nil; text != "" {
			trouble = errors.New(text)
		}
		return ""
	}
	s.play("trouble.txt")
}

// addressOfThisMachine is one that an API server passes requests on to, which it does not to those of its own host.
func (s *script) addressOfThisMachine(t *testing.T) string {
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
	t.Skip("this machine has no address beside those of its own host, and an API server passes nothing on to these")
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

// pod makes a pod that nobody schedules, so that its address stays what it is said to be.
func (s *script) pod(t *testing.T, c *lab.Cluster, program, address, port string) {
	t.Helper()
	const namespace = "cli-trouble"
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	lab.Await(t, "a pod", func(ctx context.Context) error {
		return c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-0, namespace: %s, labels: {app.kubernetes.io/name: %s}}
spec:
  schedulingGates: [{name: example.com/never}]
  containers: [{name: main, image: example.com/none, ports: [{name: healthz, containerPort: %s}]}]
`, program, namespace, program, port))
	})
	patch(t, c, pods, namespace, program+"-0", `{"status":{"phase":"Running","podIP":"`+address+`","podIPs":[{"ip":"`+address+`"}]}}`, "status")
}

// What is asked by way of the API server has to get past our own NetworkPolicies.
func TestOurPoliciesLetTheAPIServerAskPods(t *testing.T) {
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
			t.Errorf("the policy of %s shuts the port of its probes", role)
		}
	}
}
