package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSharedMode_ConfigFollowsSettings(t *testing.T) {
	authority := newAuthority(t)
	cert, key := authority.issue(t, "agent")
	redis := freePort(t)
	got := start(t, []string{"ARGOCD_AGENT_SHARED_REDIS_PASSWORD=secret"}, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0",
		"--shared-repo-server-listen", "127.0.0.1:"+freePort(t), "--shared-redis-listen", ":"+redis,
		"--shared-tls-cert", write(t, "c", cert), "--shared-tls-key", write(t, "k", key))...)
	if got.agent == nil {
		t.Fatal(got.stderr)
	}
	shared := got.agent.Shared
	if shared.RepoServer == nil || shared.Redis == nil || shared.Password != "secret" || len(shared.TLS.Certificates) != 1 {
		t.Errorf("agent: %+v", shared)
	}
	own := got.agent.Live.Redis
	if as, err := own.Credentials(); err != nil || as.Password != "secret" || own.Address != "localhost:"+redis {
		t.Errorf("live access uses %s", own.Address)
	}
	if got := start(t, nil, append(agentArgs(t), "--metrics-port", "0", "--healthz-port", "0")...); got.agent.Shared.RepoServer != nil || got.agent.Shared.Redis != nil {
		t.Error("shared mode is on by default")
	}

	principal := start(t, nil, "principal", "--kubeconfig", kubeconfig(t), "--listen-host", "127.0.0.1", "--listen-port", freePort(t), "--metrics-port", "0", "--healthz-port", "0",
		"--resource-proxy-port", freePort(t), "--redis-proxy-port", "0", "--redis-server-address", "redis:1", "--redis-password", "p",
		"--shared-mode-agents", "edge-*,w1", "--shared-repo-server-address", "repo:8081", "--shared-repo-server-ca-path", write(t, "ca", authority.pem)).principal
	if principal == nil {
		t.Fatal("no principal")
	}
	hub := principal.Shared
	if !slices.Equal(hub.Agents, []string{"edge-*", "w1"}) || hub.RepoServer != "repo:8081" || hub.RepoServerTLS.InsecureSkipVerify ||
		hub.RepoServerTLS.RootCAs == nil || hub.RepoServerTLS.ServerName != "repo" || hub.Redis.Address != "redis:1" {
		t.Errorf("principal: %+v", hub)
	}
}

func TestSharedMode_ContradictionsAreRefused(t *testing.T) {
	const agent = "agent --agent-mode managed --server-address hub.example "
	for _, tc := range []struct{ args, want string }{
		{agent + "--shared-redis-listen 6379", "must be HOST:PORT"},
		{agent + "--shared-redis-password x", "--shared-redis-password has no effect without --shared-redis-listen"},
		{agent + "--shared-tls-cert x --shared-tls-key y", "without --shared-repo-server-listen or --shared-redis-listen"},
		{agent + "--shared-redis-listen :0 --shared-tls-cert x", "belong together"},
		{agent + "--shared-redis-listen :0 --redis-addr redis:1", "--redis-addr contradicts --shared-redis-listen"},
		{"principal --shared-mode-agents [", "is not a pattern"},
		{"principal --shared-repo-server-address repo", "--shared-repo-server-address"},
		{"principal --shared-repo-server-plaintext --shared-repo-server-ca-path x", "--shared-repo-server-ca-path contradicts --shared-repo-server-plaintext"},
	} {
		if got := start(t, nil, strings.Fields(tc.args)...); !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%s: %s", tc.args, got.stderr)
		}
	}
}
