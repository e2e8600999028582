package main

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// agentArgs returns the required arguments of an agent.
func agentArgs(t *testing.T) []string {
	t.Helper()
	return []string{"agent", "--agent-mode", "managed", "--server-address", "hub.example", "--kubeconfig", kubeconfig(t)}
}

func TestSettings_ContradictionsAreRefused(t *testing.T) {
	const agent = "agent --agent-mode managed --server-address hub.example "
	for _, tc := range []struct{ args, env, want string }{
		{args: "agent", want: "--agent-mode is missing"},
		{args: "agent --agent-mode managed", want: "--server-address is missing"},
		{args: "agent --agent-mode pushed", want: "must be one of managed, autonomous"},
		{args: agent + "--server-address https://hub", want: "without a scheme"},
		{args: agent + "--server-address hub:8443", want: "the port is a setting of its own"},
		{args: agent + "--server-address not_a_host", want: "neither a host name nor an IP address"},
		{args: agent + "--server-address other.example,hub.example", want: "--server-address has hub.example twice"},
		{args: agent + "--server-address a,b,c,d,e,f,g,h", want: "--server-address has 9 addresses: at most 8"},
		{args: "agent --agent-mode managed", env: "ARGOCD_AGENT_REMOTE_SERVER=hub.example,https://other", want: `ARGOCD_AGENT_REMOTE_SERVER "https://other": must be a host name without a scheme`},
		{args: agent + "--server-port 0", want: "a number from 1 to 65535"},
		{args: agent + "--server-port 65536", want: "a number from 1 to 65535"},
		{args: agent + "--adoption-policy maybe", want: "one of always, never"},
		{args: agent + "--source-uid-mismatch-policy x", want: "one of upsert, recreate"},
		{args: agent + "--on-application-recreate x", want: "one of ignore, clear-status, resync"},
		{args: agent + "--creds basic:x", want: "mtls:, header: or header:NAME:VALUE"},
		{args: agent + "--creds header:x", want: "header:NAME:VALUE"},
		{args: agent + "--creds header:x:y", want: "add --insecure-plaintext"},
		{args: agent + "--insecure-plaintext", want: "use --creds header:"},
		{args: agent + "--insecure-plaintext --creds header: --insecure-tls --tls-client-cert c --tls-client-key k",
			want: "--tls-client-cert, --tls-client-key, --insecure-tls contradicts --insecure-plaintext"},
		{args: agent + "--insecure-tls --root-ca-secret-name other", want: "--root-ca-secret-name contradicts --insecure-tls"},
		{args: agent + "--tls-client-key k", want: "--tls-client-key without --tls-client-cert"},
		{args: agent + "--tls-client-cert c --tls-client-key k", want: "--tls-client-cert without --root-ca-path"},
		{args: agent + "--root-ca-path c", want: "--root-ca-path without --tls-client-cert"},
		{args: agent + "--keep-alive-ping-interval 9s", want: "too short"},
		{args: agent + "--heartbeat-interval 4s", want: "must be 5s to 1m"},
		{args: agent + "--heartbeat-interval 61s", want: "must be 5s to 1m"},
		{args: agent + "--keep-alive-ping-interval soon", want: "a duration such as 30s"},
		{args: agent + "--metrics-port 9000 --healthz-port 9000", want: "--metrics-port and --healthz-port are both 9000"},
		{args: agent + "--otlp-insecure", want: "--otlp-insecure has no effect without --otlp-address"},
		{args: agent, env: "ARGOCD_AGENT_OTLP_INSECURE=true", want: "ARGOCD_AGENT_OTLP_INSECURE has no effect without --otlp-address"},
		{args: agent + "--otlp-address otel", want: "of the form host:port"},
		{args: agent + "--otlp-address http://otel:4317", want: "without a scheme"},
		{args: "principal --otlp-address otel:0", want: "the port must be a number"},
		{args: agent + "--audit-log otlp", want: "otlp requires --otlp-address"},
		{args: agent + "--namespace Argo", want: "--namespace \"Argo\": invalid name"},
		{args: agent + "--label-selector a=(", want: "--label-selector"},
		{args: agent + "--allowed-namespaces team-*,team-[", want: `"team-[" is not a glob`},

		{args: "principal --tls-cert c", want: "--tls-cert without --tls-key"},
		{args: "principal", env: "ARGOCD_PRINCIPAL_TLS_CERT=c", want: "ARGOCD_PRINCIPAL_TLS_CERT without --tls-key"},
		{args: "principal --tls-key k", want: "--tls-key without --tls-cert"},
		{args: "principal --tls-cert c --tls-key k", want: "--tls-cert without --root-ca-path"},
		{args: "principal --tls-cert c --tls-key k --root-ca-path a --tls-secret-name s", want: "--tls-secret-name contradicts --tls-cert: both locate the same certificate"},
		{args: "principal --tls-cert c --tls-key k --root-ca-path a --tls-ca-secret-name s", want: "--tls-ca-secret-name contradicts --root-ca-path: both locate the same CA"},
		{args: "principal --tls-secret-name Not_a_name", want: "--tls-secret-name \"Not_a_name\": invalid name"},
		{args: "principal --tls-min-version tls1.1", want: "one of tls1.2, tls1.3"},
		{args: "principal --tls-max-version tls1.2", want: "--tls-min-version (tls1.3) is above --tls-max-version (tls1.2)"},
		{args: "principal --tls-ciphersuites TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", want: "--tls-ciphersuites has no effect without --tls-min-version tls1.2"},
		{args: "principal --tls-min-version tls1.2 --tls-ciphersuites TLS_RSA_WITH_RC4_128_SHA", want: "TLS_RSA_WITH_RC4_128_SHA is not a secure cipher suite"},
		{args: "principal --insecure-plaintext", want: "use --auth header:NAME:REGEX"},
		{args: "principal --auth header:x-agent:^(.*)$", want: "add --insecure-plaintext behind a service mesh"},
		{args: "principal --insecure-plaintext --auth header:x-agent:^(.*)$ --tls-min-version tls1.2", want: "--tls-min-version contradicts --insecure-plaintext"},
		{args: "principal --auth token:x", want: "--auth: unknown authentication method \"token:x\""},
		{args: "principal --auth mtls:uri:spiffe://x/(.+)", want: "the expression is not anchored"},
		{args: "principal --auth-header-sources 10.0.0.0/8", want: "--auth-header-sources has no effect without --auth header:NAME:REGEX"},
		{args: "principal --insecure-plaintext --auth header:x-agent:^(.*)$ --auth-header-sources gateway", want: `"gateway" is not an address prefix`},
		{args: "principal --spiffe-trust-domains example.org", want: "--spiffe-trust-domains has no effect without --spiffe-endpoint-socket"},
		{args: "principal --auth mtls:uri:^(.*)$ --spiffe-endpoint-socket unix:///run/x.sock --spiffe-trust-domains spiffe://a/b", want: "invalid SPIFFE trust domain"},
		{args: "principal --auth mtls:(", want: "missing closing )"},
		{args: "principal --namespace-create-pattern a", want: "--namespace-create-pattern has no effect without --namespace-create-enable"},
		{args: "principal --namespace-create-enable --namespace-create-pattern (", want: "not a regular expression"},
		{args: "principal --namespace-create-enable --namespace-create-labels a", want: "not of the form key=value"},
		{args: "principal --namespace-create-enable --namespace-create-labels a=$", want: "invalid label value"},
		{args: "principal --namespaced", want: "--namespaced requires --allowed-namespaces"},
		{args: "principal --namespaced --allowed-namespaces w1,w-*", want: "Patterns are not possible"},
		{args: "principal --namespaced --allowed-namespaces /w1/", want: "Patterns are not possible"},
		{args: "principal --namespaced --allowed-namespaces w1 --destination-based-mapping", want: "--destination-based-mapping contradicts --namespaced"},
		{args: "principal --namespaced --allowed-namespaces w1 --namespace-create-enable", want: "--namespace-create-enable contradicts --namespaced"},
		{args: "principal --allowed-namespaces /(/", want: "not a regular expression"},
		{args: "principal --resource-proxy-address proxy", want: "of the form host:port"},
		{args: "principal --resource-proxy-address proxy:0", want: "the port must be a number"},
		{args: "principal --resource-proxy-cert-path c", want: "--resource-proxy-cert-path without --resource-proxy-key-path"},
		{args: "principal --resource-proxy-port 8443", want: "--listen-port and --resource-proxy-port are both 8443"},
		{args: "principal --redis-server-address redis", want: "of the form host:port"},
		{args: "principal --redis-compression-type zip", want: "one of gzip, none"},
		{args: "principal --redis-password p --redis-creds-dir-path d", want: "--redis-password contradicts --redis-creds-dir-path"},
		{args: "principal --redis-tls-insecure", want: "--redis-tls-insecure has no effect without --redis-tls-enabled"},
		{args: "principal --redis-tls-enabled --redis-proxy-server-tls-cert c", want: "--redis-proxy-server-tls-key belong together"},
		{args: "principal --redis-tls-enabled --redis-proxy-server-tls-secret-name a/b", want: "--redis-proxy-server-tls-secret-name"},
		{args: "principal --redis-tls-enabled --redis-ca-secret-name a/b", want: "--redis-tls-ca-secret-name"},
		{args: "principal --redis-tls-enabled --redis-tls-insecure --redis-ca-secret-name c", want: "--redis-tls-ca-secret-name contradicts --redis-tls-insecure"},
		{args: "principal --auth userpass:/creds", want: "use client certificates"},
		{args: agent + "--creds userpass:/creds", want: "use client certificates"},
		{args: agent + "--resource-proxy-level some", want: "one of none, application, namespaces, all"},
		{args: agent + "--resource-proxy-level namespaces", want: "--resource-proxy-namespaces is empty"},
		{args: agent + "--resource-proxy-namespaces a", want: "--resource-proxy-namespaces has no effect without --resource-proxy-level namespaces"},
		{args: agent + "--resource-proxy-level namespaces --resource-proxy-namespaces [", want: "--resource-proxy-namespaces: invalid pattern"},
		{args: agent + "--resource-proxy-exec=perhaps", want: "true or false"},
		{args: agent, env: "REDIS_ADDR=redis", want: "REDIS_ADDR \"redis\": must be of the form host:port"},
		{args: agent + "--redis-tls-enabled --redis-tls-insecure --redis-tls-ca-path c", want: "--redis-tls-ca-path contradicts --redis-tls-insecure"},
		{args: agent + "--redis-tls-enabled --redis-tls-cert-path c", want: "--redis-tls-cert-path"},
		{args: agent + "--redis-tls-cert-path c --redis-tls-key-path k", want: "--redis-tls-enabled"},
		{args: "principal --shared-repo-server-client-key-path k", want: "--shared-repo-server-client-cert-path"},
		{args: "principal --shared-repo-server-plaintext --shared-repo-server-client-cert-path c --shared-repo-server-client-key-path k", want: "contradicts --shared-repo-server-plaintext"},
		{args: "principal --agent-certificate-lifetime 1s", want: "at least 10m0s"},
		{args: "principal --tls-server-names a_b", want: "neither a host name nor an IP address"},
		{args: "principal --spiffe-endpoint-socket unix:///run/x.sock", want: "requires --auth mtls:uri:REGEX"},
		{args: "principal --auth mtls:uri:^(.*)$ --spiffe-endpoint-socket /run/x.sock", want: "invalid SPIFFE Workload API address"},
		{args: "principal --auth mtls:uri:^(.*)$ --tls-secret-name s", env: "SPIFFE_ENDPOINT_SOCKET=unix:///run/x.sock", want: "--tls-secret-name contradicts SPIFFE_ENDPOINT_SOCKET"},
		{args: agent + "--spiffe-endpoint-socket unix:///run/x.sock", want: "any workload of the trust domain could impersonate the principal"},
		{args: agent + "--spiffe-endpoint-socket unix:///run/x.sock --spiffe-server-id hub", want: "invalid SPIFFE ID"},
		{args: agent + "--spiffe-server-id spiffe://a/b", want: "no effect without --spiffe-endpoint-socket"},
		{args: agent + "--join-secret-name Not_a_name", want: "--join-secret-name \"Not_a_name\": invalid name"},
		{args: agent + "--enable-websocket --insecure-plaintext --creds header:", want: "--enable-websocket contradicts --insecure-plaintext"},
		{args: "principal --enable-websocket --insecure-plaintext --auth header:x-agent:^(.*)$", want: "--enable-websocket contradicts --insecure-plaintext"},
		{args: "principal --search-allowed-origins https://a", want: "--search-allowed-origins has no effect without --search-port"},
		{args: "principal --search-port 8444 --search-allowed-origins https://a/", want: `"https://a/" is not an origin`},
		{args: "principal --search-port 8444 --search-allowed-origins *", want: `"*" is not an origin`},
		{args: "principal --search-port 8444 --search-allowed-origins https://A.example", want: "in lower case"},
		{args: "principal --search-port 8444 --search-allowed-origins null", want: `"null" is not an origin`},
		{args: "principal --search-url https://a", want: "--search-url has no effect without --search-port"},
		{args: "principal --search-port 8444 --search-url http://a", want: "must be of the form https://HOST:PORT"},
		{args: "principal --search-port 8444 --search-url https://me:x@a", want: "must be of the form https://HOST:PORT"},
		{args: "principal --listen-host somewhere:1", want: "--listen-host \"somewhere:1\": must be a host name"},
		{args: "principal --listen-port 8000", want: "--listen-port and --metrics-port are both 8000"},
		{args: "principal --keepalive-min-interval 500ms", want: "too short"},
		{args: "principal --log-level loud", want: "one of trace, debug, info, warn, error"},
		{args: "principal", env: "ARGOCD_PRINCIPAL_LISTEN_PORT=many", want: `ARGOCD_PRINCIPAL_LISTEN_PORT "many": must be a number`},
		{args: "principal", env: "ARGOCD_PRINCIPAL_INSECURE_PLAINTEXT=yes", want: "true or false"},
	} {
		var env []string
		if tc.env != "" {
			env = []string{tc.env}
		}
		got := start(t, env, strings.Fields(tc.args)...)
		if got.code != cmdline.ExitUsage || !strings.Contains(got.stderr, tc.want) || strings.Count(got.stderr, "\n") > 2 {
			t.Errorf("%s %s: exit code %d, %s\nwant %s", tc.env, tc.args, got.code, got.stderr, tc.want)
		}
		if got.principal != nil || got.agent != nil {
			t.Errorf("%s %s: it was started", tc.env, tc.args)
		}
	}
}

func TestSettings_AllErrorsAreReportedTogether(t *testing.T) {
	got := start(t, nil, "principal", "--tls-key", "k", "--allowed-namespaces", "a[", "--listen-port", "8003")
	for _, want := range []string{"--tls-key", "a[", "8003"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%q lacks %s", got.stderr, want)
		}
	}
	for line := range strings.Lines(got.stderr) {
		if !strings.HasPrefix(line, "argocd-agent: ") {
			t.Errorf("want one line per error: %q", line)
		}
	}
}

func TestSettings_ExplicitDefaultContradictsNothing(t *testing.T) {
	authority := newAuthority(t)
	cert, key := authority.issue(t, "principal")
	args := []string{"principal", "--kubeconfig", kubeconfig(t), "--listen-port", freePort(t), "--listen-host", "127.0.0.1", "--metrics-port", "0", "--healthz-port", "0",
		"--resource-proxy-port", freePort(t), "--redis-proxy-port", "0",
		"--tls-cert", write(t, "c", cert), "--tls-key", write(t, "k", key), "--root-ca-path", write(t, "a", authority.pem)}
	env := []string{"ARGOCD_PRINCIPAL_TLS_SECRET_NAME=argocd-agent-principal-tls", "ARGOCD_PRINCIPAL_TLS_CA_SECRET_NAME=argocd-agent-ca",
		"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_PATTERN=", "ARGOCD_PRINCIPAL_TLS_CIPHERSUITES="}
	if got := start(t, env, args...); got.principal == nil || got.stderr != "" {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
}
