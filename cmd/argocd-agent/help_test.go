package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "update the golden files")

func TestHelp_IsAsRecorded(t *testing.T) {
	for name, args := range map[string][]string{
		"root":      {"--help"},
		"principal": {"principal", "--help"},
		"agent":     {"agent", "--help"},
		"version":   {"version", "--help"},
	} {
		got := start(t, nil, args...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("%s: exit code %d, %q", name, got.code, got.stderr)
		}
		path := filepath.Join("testdata", "help", name+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got.stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got.stdout != string(want) {
			t.Errorf("the help of %s differs from %s; to accept it, run: go test ./cmd/argocd-agent -update\n%s", name, path, got.stdout)
		}
	}
}

func TestHelp_FitsIntoTerminal(t *testing.T) {
	for _, command := range []string{"principal", "agent"} {
		for line := range strings.Lines(start(t, nil, command, "--help").stdout) {
			if len([]rune(line)) > 105 {
				t.Errorf("%s: a line of %d characters: %s", command, len([]rune(line)), line)
			}
		}
	}
}

func TestHelp_IsShownForEveryRequest(t *testing.T) {
	want := start(t, nil, "agent", "--help").stdout
	for _, args := range [][]string{{"help", "agent"}, {"agent", "-h"}, {"agent", "--agent-mode", "managed", "--help"}} {
		if got := start(t, nil, args...); got.code != 0 || got.stdout != want {
			t.Errorf("%q: code %d, stderr %q", args, got.code, got.stderr)
		}
	}
	if got := start(t, nil); got.code != 0 || got.stdout != start(t, nil, "--help").stdout {
		t.Errorf("no arguments: code %d, %q", got.code, got.stdout)
	}
}

// Existing installations use these names.
func TestFlags_ConventionalNamesExist(t *testing.T) {
	both := "namespace allowed-namespaces label-selector destination-based-mapping tls-secret-name root-ca-path " +
		"log-level log-format metrics-port healthz-port pprof-port otlp-address otlp-insecure kubeconfig kubecontext"
	for prefix, names := range map[string]string{
		principalPrefix: both + " listen-host listen-port namespace-create-enable namespace-create-pattern namespace-create-labels auth tls-cert tls-key " +
			"tls-ca-secret-name tls-min-version tls-max-version tls-ciphersuites insecure-plaintext enable-websocket resource-proxy-address keepalive-min-interval " +
			"require-registration share-unscoped-repositories sync-repository-trust sync-argocd-settings",
		agentPrefix: both + " creds create-namespace tls-client-cert tls-client-key root-ca-secret-name enable-compression enable-websocket keep-alive-ping-interval heartbeat-interval " +
			"ignore-unmanaged-apps source-uid-mismatch-policy on-application-recreate adoption-policy informer-sync-timeout",
	} {
		f := declared(prefix)
		for name := range strings.FieldsSeq(names) {
			if want := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")); f.settings[name] == nil || f.settings[name].env != want {
				t.Errorf("--%s: environment %q, want %q", name, f.settings[name].env, want)
			}
		}
	}
	f := declared(agentPrefix)
	for name, want := range map[string]string{"server-address": "ARGOCD_AGENT_REMOTE_SERVER", "server-port": "ARGOCD_AGENT_REMOTE_PORT",
		"agent-mode": "ARGOCD_AGENT_MODE", "insecure-tls": "ARGOCD_AGENT_TLS_INSECURE",
		"redis-addr": "REDIS_ADDR", "redis-username": "REDIS_USERNAME", "redis-password": "REDIS_PASSWORD", "redis-creds-dir-path": "REDIS_CREDS_DIR_PATH"} {
		if f.settings[name].env != want {
			t.Errorf("--%s: environment %q, want %q", name, f.settings[name].env, want)
		}
	}
}
