package main

// This file has the names that manifests and ConfigMaps of existing argocd-agent installations use.

// existingVariables are environment variables of existing installations, by flag and component. They are used if the
// variable of the setting itself is not set.
var existingVariables = map[string]map[string]string{
	principalPrefix: {
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
	},
	agentPrefix: {
		"root-ca-secret-name": "ARGOCD_AGENT_TLS_ROOT_CA_SECRET_NAME",
		"root-ca-path":        "ARGOCD_AGENT_TLS_ROOT_CA_PATH",
		"tls-client-cert":     "ARGOCD_AGENT_TLS_CLIENT_CERT_PATH",
		"tls-client-key":      "ARGOCD_AGENT_TLS_CLIENT_KEY_PATH",
		"healthz-port":        "ARGOCD_AGENT_HEALTH_CHECK_PORT",
	},
}

// An ignoredSetting is a setting of existing installations that has no meaning here. It is accepted with a warning.
type ignoredSetting struct {
	flag    string
	boolean bool // --flag needs no value
	reason  string
}

var ignoredSettings = map[string][]ignoredSetting{
	principalPrefix: {
		{"full-detail", true, "log records always have all fields"},
		{"insecure-tls-generate", true, "the principal issues its certificate itself if there is none"},
		{"require-client-certs", true, "client certificates are always required"},
		{"client-cert-subject-match", true, "use --auth to select the part of the certificate that names the agent"},
		{"jwt-secret-name", false, "connections use no JWT, so no key is needed"},
		{"jwt-key", false, "connections use no JWT, so no key is needed"},
		{"insecure-jwt-generate", true, "connections use no JWT, so no key is needed"},
		{"grpc-max-message-size", false, "messages have a fixed limit, and larger objects are rejected with a condition"},
		{"event-processors", false, "the number of workers is chosen by the principal"},
	},
	agentPrefix: {
		{"full-detail", true, "log records always have all fields"},
		{"cache-refresh-interval", false, "the agent uses watches and needs no refresh"},
		{"buffer-informer-event-interval", false, "events are not buffered"},
		{"grpc-max-message-size", false, "messages have a fixed limit, and larger objects are rejected with a condition"},
	},
}

// acceptExisting declares what existing installations use. Call it after the settings are declared.
func (f *flags) acceptExisting() {
	for flag, variable := range existingVariables[f.prefix] {
		if s := f.settings[flag]; s != nil && s.env != variable {
			s.existing = variable
		}
	}
	for _, ignored := range ignoredSettings[f.prefix] {
		flag := f.set.VarPF(text(new(string), "VALUE", ""), ignored.flag, "", "")
		flag.Hidden = true
		if ignored.boolean {
			flag.NoOptDefVal = "true"
		}
	}
	if namespace := f.set.Lookup("namespace"); namespace != nil && f.set.ShorthandLookup("n") == nil {
		shorthand := *namespace
		shorthand.Name, shorthand.Shorthand, shorthand.Hidden = "existing-namespace", "n", true
		f.set.AddFlag(&shorthand)
	}
}

// warnIgnored warns of settings without a meaning, once each. It removes their variables.
func (f *flags) warnIgnored(env map[string]string) {
	for _, ignored := range ignoredSettings[f.prefix] {
		variable := f.prefix + environmentName(ignored.flag)
		_, inEnvironment := env[variable]
		if f.set.Changed(ignored.flag) || inEnvironment {
			f.warn("--"+ignored.flag, "it has no effect: "+ignored.reason)
			delete(env, variable)
		}
	}
}
