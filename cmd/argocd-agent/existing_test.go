package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/existing"
)

func TestExistingVariables_SetTheirFlags(t *testing.T) {
	for prefix, variables := range existing.Variables {
		p := &program{}
		cmd := p.agentCommand()
		if prefix == principalPrefix {
			cmd = p.principalCommand()
		}
		for flag := range variables {
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no flag --%s", cmd.Name(), flag)
			}
		}
	}
	quiet := append(agentArgs(t), "--metrics-port", "0")
	got := start(t, []string{"ARGOCD_AGENT_HEALTH_CHECK_PORT=0", "ARGOCD_AGENT_KEEP_ALIVE_PING_INTERVAL=0"}, quiet...)
	if got.agent == nil {
		t.Fatal(got.stderr)
	}
	if got.agent.HealthListener != nil || got.agent.KeepAlive.Seconds() != 30 {
		t.Errorf("probes %v, keep-alive %v", got.agent.HealthListener, got.agent.KeepAlive)
	}
	// The setting's own variable wins.
	got = start(t, []string{"ARGOCD_AGENT_HEALTH_CHECK_PORT=77777777", "ARGOCD_AGENT_HEALTHZ_PORT=0"}, quiet...)
	if got.agent == nil {
		t.Error(got.stderr)
	}
	got = start(t, []string{"ARGOCD_AGENT_HEALTH_CHECK_PORT=x"}, quiet...)
	if got.agent != nil || !strings.Contains(got.stderr, "ARGOCD_AGENT_HEALTH_CHECK_PORT") {
		t.Errorf("an invalid value is not reported with its variable: %s", got.stderr)
	}
}

func TestIgnoredSettings_AreWarnedOnce(t *testing.T) {
	args := append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0", "--full-detail", "--cache-refresh-interval", "10s", "--ignore-unmanaged-apps=false", "-n", "argocd")
	got := start(t, []string{"ARGOCD_AGENT_LOG_FORMAT=json", "ARGOCD_AGENT_CACHE_REFRESH_INTERVAL=10s", "ARGOCD_AGENT_GRPC_MAX_MESSAGE_SIZE=1"}, args...)
	if got.agent == nil {
		t.Fatal(got.stderr)
	}
	if got.agent.Namespace != "argocd" {
		t.Errorf("-n sets namespace %q", got.agent.Namespace)
	}
	warned := warnings(t, got)
	want := []string{"--cache-refresh-interval", "--full-detail", "--grpc-max-message-size", "--ignore-unmanaged-apps"}
	var names []string
	for name, reason := range warned {
		names = append(names, name)
		if !strings.Contains(reason, "no effect") {
			t.Errorf("%s: %s", name, reason)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("warned of %v, want %v", names, want)
	}
	if n := strings.Count(got.stderr, "cache-refresh-interval"); n != 1 {
		t.Errorf("%d warnings for one setting", n)
	}
}
