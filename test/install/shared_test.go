package install

import (
	"context"
	"net"
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

// sharedModeRuns permits shared mode for an installed agent, upgrades the agent with the value of the chart, removes
// repo-server and Redis of the cluster, and deploys.
func sharedModeRuns(t *testing.T, l *lab.Lab, programs string, before *podrun.Pod, values ...string) {
	t.Helper()
	spoke := l.Cluster("managed")
	if out, err := l.Command(t.Context(), programs+"/argocd-agentctl", "agent", "reconfigure", "w1", "--shared", "--principal-context", "hub").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := before.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := installRelease(t, l, "managed", lab.ArgoCDNamespace, append(values, "agent.shared=true")...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var ports map[int32]int
	agent := startPod(t, spoke, installed(t, l, "managed"), "argocd-agent-agent", programs+"/argocd-agent", func(o *podrun.Options) { ports = o.Ports })
	ready(t, agent)
	for _, component := range []string{"managed/repo-server", "managed/redis"} {
		if err := l.Kill(t.Context(), component); err != nil {
			t.Fatal(err)
		}
	}
	// The controller's addresses lead to the Services of the agent, here to its ports.
	at := func(port int32) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[port])) }
	if err := l.Restart(t.Context(), "managed/application-controller", lab.Flag("--repo-server", at(8081)), lab.Flag("--redis", at(6379))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for the next tests
		for _, component := range []string{"managed/repo-server", "managed/redis"} {
			if err := l.Restart(context.Background(), component); err != nil {
				t.Error(err)
			}
		}
	})
	deployed(t, l)
	if status := agent.Status(); status.Starts != 1 {
		t.Errorf("the agent was started %d times; last exit: %v", status.Starts, status.LastExit)
	}
}
