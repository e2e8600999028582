package main

import "testing"

func TestTrace_OffUnlessAddressIsSet(t *testing.T) {
	args := append(agentArgs(t), "--healthz-port", "0", "--metrics-port", "0")
	if got := start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://otel:4317"}, args...); got.agent == nil || got.agent.Trace != nil {
		t.Errorf("%s", got.stderr)
	}
	if got := start(t, []string{"ARGOCD_AGENT_OTLP_ADDRESS=127.0.0.1:1"}, args...); got.agent == nil || got.agent.Trace == nil {
		t.Errorf("%s", got.stderr)
	}
	args = []string{"principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t), "--resource-proxy-port", freePort(t),
		"--redis-proxy-port", freePort(t), "--healthz-port", "0", "--metrics-port", "0", "--otlp-address", "127.0.0.1:1", "--otlp-insecure"}
	if got := start(t, nil, args...); got.principal == nil || got.principal.Trace == nil {
		t.Errorf("%s", got.stderr)
	}
}
