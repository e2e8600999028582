// Package existing has the names of settings that manifests and ConfigMaps of existing argocd-agent installations use. The
// programs accept them, and argocd-agentctl import converts them.
package existing

// Prefixes of environment variables. They identify a component.
const (
	PrincipalPrefix = "ARGOCD_PRINCIPAL_"
	AgentPrefix     = "ARGOCD_AGENT_"
)

// Variables are environment variables of existing installations, by flag and component. They are used if the
// variable of the setting itself is not set.
var Variables = map[string]map[string]string{
	PrincipalPrefix: {
		"tls-cert":                 "ARGOCD_PRINCIPAL_TLS_SERVER_CERT_PATH",
		"tls-key":                  "ARGOCD_PRINCIPAL_TLS_SERVER_KEY_PATH",
		"tls-ca-secret-name":       "ARGOCD_PRINCIPAL_TLS_SERVER_ROOT_CA_SECRET_NAME",
		"root-ca-path":             "ARGOCD_PRINCIPAL_TLS_SERVER_ROOT_CA_PATH",
		"resource-proxy-cert-path": "ARGOCD_PRINCIPAL_RESOURCE_PROXY_TLS_CERT_PATH",
		"resource-proxy-key-path":  "ARGOCD_PRINCIPAL_RESOURCE_PROXY_TLS_KEY_PATH",
		"resource-proxy-ca-path":   "ARGOCD_PRINCIPAL_RESOURCE_PROXY_TLS_CA_PATH",
		"keepalive-min-interval":   "ARGOCD_PRINCIPAL_KEEP_ALIVE_MIN_INTERVAL",
		"healthz-port":             "ARGOCD_PRINCIPAL_HEALTH_CHECK_PORT",
		"redis-password":           "REDIS_PASSWORD",
		"redis-creds-dir-path":     "REDIS_CREDS_DIR_PATH",
		"redis-tls-ca-path":        "ARGOCD_PRINCIPAL_REDIS_CA_PATH",
		"redis-tls-ca-secret-name": "ARGOCD_PRINCIPAL_REDIS_CA_SECRET_NAME",

		"redis-proxy-server-tls-cert": "ARGOCD_PRINCIPAL_REDIS_PROXY_SERVER_TLS_CERT_PATH",
		"redis-proxy-server-tls-key":  "ARGOCD_PRINCIPAL_REDIS_PROXY_SERVER_TLS_KEY_PATH",
	},
	AgentPrefix: {
		"root-ca-secret-name": "ARGOCD_AGENT_TLS_ROOT_CA_SECRET_NAME",
		"root-ca-path":        "ARGOCD_AGENT_TLS_ROOT_CA_PATH",
		"tls-client-cert":     "ARGOCD_AGENT_TLS_CLIENT_CERT_PATH",
		"tls-client-key":      "ARGOCD_AGENT_TLS_CLIENT_KEY_PATH",
		"healthz-port":        "ARGOCD_AGENT_HEALTH_CHECK_PORT",
	},
}

// Flags are flags of existing installations with another name here, by component.
var Flags = map[string]map[string]string{
	PrincipalPrefix: {
		"redis-ca-path":        "redis-tls-ca-path",
		"redis-ca-secret-name": "redis-tls-ca-secret-name",
	},
}

// An IgnoredSetting is a setting of existing installations that has no meaning here. It is accepted with a warning.
// Settings with the same reason share one.
type IgnoredSetting struct {
	Flag     string
	Boolean  bool // --flag needs no value
	Reason   string
	Variable string // if empty, it follows the name of the flag
}

const (
	noJWT       = "connections use no JWT, so no key is needed"
	severalHubs = "two hubs are set up with argocd-agentctl hub and --hub-lease-kubeconfig, see docs/hubs.md"
)

// Ignored are the settings without a meaning, by component.
var Ignored = map[string][]IgnoredSetting{
	PrincipalPrefix: {
		{"full-detail", true, "log records always have all fields", ""},
		{"insecure-tls-generate", true, "the principal issues its certificate itself if there is none", "ARGOCD_PRINCIPAL_TLS_SERVER_ALLOW_GENERATE"},
		{"require-client-certs", true, "client certificates are always required", "ARGOCD_PRINCIPAL_TLS_CLIENT_CERT_REQUIRE"},
		{"client-cert-subject-match", true, "use --auth to select the part of the certificate that names the agent",
			"ARGOCD_PRINCIPAL_TLS_CLIENT_CERT_MATCH_SUBJECT"},
		{"jwt-secret-name", false, noJWT, ""},
		{"jwt-key", false, noJWT, "ARGOCD_PRINCIPAL_JWT_KEY_PATH"},
		{"insecure-jwt-generate", true, noJWT, "ARGOCD_PRINCIPAL_JWT_ALLOW_GENERATE"},
		{"grpc-max-message-size", false, "messages have a fixed limit, and larger objects are rejected with a condition", ""},
		{"event-processors", false, "the number of workers is chosen by the principal", ""},
		{"ha-enabled", true, severalHubs, ""},
		{"ha-preferred-role", false, severalHubs, ""},
		{"ha-peer-address", false, severalHubs, ""},
		{"ha-failover-timeout", false, severalHubs, ""},
		{"ha-admin-port", false, severalHubs, ""},
		{"ha-allowed-replication-clients", false, severalHubs, ""},
		{"ha-replication-initial-ack-timeout", false, severalHubs, ""},
	},
	AgentPrefix: {
		{"full-detail", true, "log records always have all fields", ""},
		{"cache-refresh-interval", false, "the agent uses watches and needs no refresh", ""},
		{"buffer-informer-event-interval", false, "events are not buffered", ""},
		{"grpc-max-message-size", false, "messages have a fixed limit, and larger objects are rejected with a condition", ""},
	},
}
