package wire

import "github.com/argocd-agent/argocd-agent/internal/engine"

func (w *writer) hello(m engine.Hello) {
	w.uint(helloClockMillis, uint64(m.ClockMillis))
	w.seen(helloSeen, m.Seen)
	w.store(helloStore, m.Store)
	w.capabilities(helloCapabilities, m.Capabilities)
	w.versionRange(helloProjection, "projection", m.Projection)
	w.versionRange(helloProtocol, "protocol", m.Protocol)
	w.string(helloVersion, "version", buildVersion, m.Version)
	w.string(helloNamespace, "namespace", namespaceName, m.Namespace)
	w.string(helloMapping, "mapping", shortToken, m.Mapping)
	w.string(helloMode, "mode", shortToken, m.Mode)
	w.string(helloClusterUID, "cluster_uid", uid, m.ClusterUID)
	w.epoch(helloEpoch, m.Epoch)
}

func readHello(b []byte) (engine.Message, *Error) {
	var m engine.Hello
	r := reader{rest: b}
	capabilities := r.count(helloCapabilities, "capabilities", MaxCapabilities)
	seen := r.count(helloSeen, "seen", MaxScopes)
	for r.next() {
		switch r.tag {
		case helloEpoch:
			r.nested("epoch", readEpoch(r.data, &m.Epoch))
		case helloClusterUID:
			m.ClusterUID = r.string("cluster_uid", uid)
		case helloMode:
			m.Mode = r.string("mode", shortToken)
		case helloMapping:
			m.Mapping = r.string("mapping", shortToken)
		case helloNamespace:
			m.Namespace = r.string("namespace", namespaceName)
		case helloVersion:
			m.Version = r.string("version", buildVersion)
		case helloProtocol:
			r.nested("protocol", readVersionRange(r.data, &m.Protocol))
		case helloProjection:
			r.nested("projection", readVersionRange(r.data, &m.Projection))
		case helloCapabilities:
			m.Capabilities = r.appendCapability(m.Capabilities, capabilities)
		case helloStore:
			r.nested("store", readStore(r.data, &m.Store))
		case helloSeen:
			m.Seen = r.appendSeen(m.Seen, seen)
		case helloClockMillis:
			m.ClockMillis = int64(r.num)
		}
	}
	return m, r.err
}

func (w *writer) welcome(m engine.Welcome) {
	w.string(welcomeInstanceLabel, "instance_label", labelKey, m.InstanceLabel)
	w.uint(welcomeClockMillis, uint64(m.ClockMillis))
	w.seen(welcomeSeen, m.Seen)
	w.store(welcomeStore, m.Store)
	w.capabilities(welcomeCapabilities, m.Capabilities)
	w.version(welcomeProjection, "projection", m.Projection)
	w.version(welcomeProtocol, "protocol", m.Protocol)
	w.string(welcomeVersion, "version", buildVersion, m.Version)
	w.string(welcomePrincipalUID, "principal_uid", uid, m.PrincipalUID)
	w.string(welcomeServerURL, "server_url", address, m.ServerURL)
	w.string(welcomeArgoNamespace, "argo_namespace", namespaceName, m.ArgoNamespace)
	w.string(welcomeHubNamespace, "hub_namespace", namespaceName, m.HubNamespace)
	w.string(welcomeMapping, "mapping", shortToken, m.Mapping)
	w.string(welcomeMode, "mode", shortToken, m.Mode)
	w.string(welcomeAgent, "agent", agentName, m.Agent)
	w.epoch(welcomeEpoch, m.Epoch)
}

func readWelcome(b []byte) (engine.Message, *Error) {
	var m engine.Welcome
	r := reader{rest: b}
	capabilities := r.count(welcomeCapabilities, "capabilities", MaxCapabilities)
	seen := r.count(welcomeSeen, "seen", MaxScopes)
	for r.next() {
		switch r.tag {
		case welcomeEpoch:
			r.nested("epoch", readEpoch(r.data, &m.Epoch))
		case welcomeAgent:
			m.Agent = r.string("agent", agentName)
		case welcomeMode:
			m.Mode = r.string("mode", shortToken)
		case welcomeMapping:
			m.Mapping = r.string("mapping", shortToken)
		case welcomeHubNamespace:
			m.HubNamespace = r.string("hub_namespace", namespaceName)
		case welcomeArgoNamespace:
			m.ArgoNamespace = r.string("argo_namespace", namespaceName)
		case welcomeServerURL:
			m.ServerURL = r.string("server_url", address)
		case welcomePrincipalUID:
			m.PrincipalUID = r.string("principal_uid", uid)
		case welcomeVersion:
			m.Version = r.string("version", buildVersion)
		case welcomeProtocol:
			m.Protocol = r.version("protocol")
		case welcomeProjection:
			m.Projection = r.version("projection")
		case welcomeCapabilities:
			m.Capabilities = r.appendCapability(m.Capabilities, capabilities)
		case welcomeStore:
			r.nested("store", readStore(r.data, &m.Store))
		case welcomeSeen:
			m.Seen = r.appendSeen(m.Seen, seen)
		case welcomeClockMillis:
			m.ClockMillis = int64(r.num)
		case welcomeInstanceLabel:
			m.InstanceLabel = r.string("instance_label", labelKey)
		}
	}
	return m, r.err
}

func (w *writer) bye(m engine.Bye) {
	w.pause(byeRetryAfter, "retry_after_millis", m.RetryAfterMillis)
	w.string(byeMessage, "message", messageText, sanitizeText(m.Message))
	w.string(byeCode, "code", shortToken, string(m.Code))
}

func readBye(b []byte) (engine.Message, *Error) {
	var m engine.Bye
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case byeCode:
			m.Code = engine.Code(r.string("code", shortToken))
		case byeMessage:
			m.Message = r.string("message", messageText)
		case byeRetryAfter:
			m.RetryAfterMillis = r.pause("retry_after_millis")
		}
	}
	return m, r.err
}

func (w *writer) open(m engine.Open) {
	w.string(openTarget, "target", tunnelWord, m.Target)
	w.string(openToken, "token", tunnelWord, m.Token)
}

func readOpen(b []byte) (engine.Message, *Error) {
	var m engine.Open
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case openToken:
			m.Token = r.string("token", tunnelWord)
		case openTarget:
			m.Target = r.string("target", tunnelWord)
		}
	}
	return m, r.err
}
