package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestEnvironment_OverridesDefaultAndFlagOverridesIt(t *testing.T) {
	quiet := append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")
	server := func(env []string, more ...string) string {
		got := start(t, env, append(slices.Clone(quiet), more...)...)
		if got.agent == nil {
			t.Fatal(got.stderr)
		}
		return strings.Join(got.agent.Servers, " ")
	}
	if got := server(nil); got != "hub.example:443" {
		t.Errorf("default: %s", got)
	}
	env := []string{"ARGOCD_AGENT_REMOTE_PORT=8443", "ARGOCD_AGENT_REMOTE_SERVER=ignored.example"}
	if got := server(env); got != "hub.example:8443" {
		t.Errorf("environment: %s", got)
	}
	if got := server(env, "--server-port", "9443"); got != "hub.example:9443" {
		t.Errorf("flag: %s", got)
	}
	if got := server([]string{"ARGOCD_AGENT_REMOTE_PORT="}); got != "hub.example:443" {
		t.Errorf("empty variable: %s", got)
	}
	if got := server(nil, "--server-address", "[::1]"); got != "hub.example:443 [::1]:443" {
		t.Errorf("repeated, IPv6: %s", got)
	}
	got := start(t, []string{"ARGOCD_AGENT_REMOTE_SERVER=first.example, second.example"}, "agent", "--agent-mode", "managed", "--kubeconfig", kubeconfig(t),
		"--metrics-port", "0", "--healthz-port", "0")
	if got.agent == nil || !slices.Equal(got.agent.Servers, []string{"first.example:443", "second.example:443"}) {
		t.Errorf("list in a variable: %+v, %s", got.agent, got.stderr)
	}
}

func TestEnvironment_UnknownVariableIsWarned(t *testing.T) {
	env := []string{
		"ARGOCD_AGENT_LOG_FORMAT=json",
		"ARGOCD_AGENT_METRICS_PORT=0", "ARGOCD_AGENT_HEALTHZ_PORT=0",
		"ARGOCD_AGENT_NAMESPCE=argocd",
		"ARGOCD_AGENT_SERVER_ADDRESS=hub",
		"ARGOCD_AGENT_EMPTY=",
		"ARGOCD_PRINCIPAL_WHATEVER=x", // of the other component
		"ARGOCD_AGENT_SERVICE_HOST=10.0.0.1", "ARGOCD_AGENT_SERVICE_PORT_HTTPS=443", "ARGOCD_AGENT_PORT=tcp://10.0.0.1:443",
		"ARGOCD_AGENT_PORT_443_TCP_ADDR=10.0.0.1",
	}
	got := warnings(t, start(t, env, agentArgs(t)...))
	for variable, want := range map[string]string{
		"ARGOCD_AGENT_NAMESPCE":       "unknown setting",
		"ARGOCD_AGENT_SERVER_ADDRESS": "the variable of --server-address is ARGOCD_AGENT_REMOTE_SERVER",
	} {
		if !strings.Contains(got[variable], want) {
			t.Errorf("%s: %q, want %q", variable, got[variable], want)
		}
		delete(got, variable)
	}
	if len(got) > 0 {
		t.Errorf("unexpected warnings: %v", got)
	}
}

// A Service argocd-agent-metrics gives every pod in its namespace a variable that is named like the setting of the port.
func TestEnvironment_ServiceLinkIsIgnored(t *testing.T) {
	env := []string{"ARGOCD_AGENT_LOG_FORMAT=json", "ARGOCD_AGENT_METRICS_PORT=tcp://10.0.0.1:8181"}
	got := start(t, env, append(agentArgs(t), "--healthz-port", "0", "--metrics-port", "0")...)
	if w := warnings(t, got); len(w) != 0 {
		t.Errorf("the flag overrides the variable, but there are warnings: %v", w)
	}
	f := declared(agentPrefix)
	f.readEnvironment(env)
	if len(f.errs) != 0 || len(f.warnings) != 1 || !strings.Contains(f.warnings[0].reason, "enableServiceLinks") {
		t.Errorf("%v %v", f.warnings, f.errs)
	}
	if port := f.set.Lookup("metrics-port").Value.String(); port != "8181" {
		t.Errorf("port %s, want the default", port)
	}
}

func TestSettings_WithoutEffectAreWarned(t *testing.T) {
	quiet := []string{"--metrics-port", "0", "--healthz-port", "0", "--log-format", "json"}
	got := warnings(t, start(t, nil, append(append(agentArgs(t), quiet...), "--agent-mode", "autonomous", "--adoption-policy", "never", "--destination-based-mapping")...))
	if len(got) != 2 || !strings.Contains(got["--destination-based-mapping"], "no effect in autonomous mode") || !strings.Contains(got["--adoption-policy"], "no effect in autonomous mode") {
		t.Errorf("%v", got)
	}
	got = warnings(t, start(t, nil, append(append(agentArgs(t), quiet...), "--allowed-namespaces", "a", "--insecure-tls")...))
	if len(got) != 2 || !strings.Contains(got["--allowed-namespaces"], "no effect in managed mode") || got["--insecure-tls"] == "" {
		t.Errorf("%v", got)
	}
}

// warnings returns the reasons of the logged warnings by setting.
func warnings(t *testing.T, s started) map[string]string {
	t.Helper()
	if s.agent == nil {
		t.Fatalf("not started: %s", s.stderr)
	}
	all := map[string]string{}
	for line := range strings.Lines(s.stderr) {
		var entry struct{ Level, Setting, Reason string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry.Level == "WARN" {
			all[entry.Setting] = entry.Reason
		}
	}
	return all
}

func TestSplitList_KeepsPatternsWhole(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         nil,
		"a, b ,,c":                 {"a", "b", "c"},
		"team-{a,b},x":             {"team-{a,b}", "x"},
		"/^t{1,2}$/,[a,b]*,{a,{b}": {"/^t{1,2}$/", "[a,b]*", "{a,{b}"},
	} {
		if got := splitList(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
