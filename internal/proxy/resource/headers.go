package resource

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// identityHeaders carry an identity or change the behavior of proxies. They are not forwarded.
var identityHeaders = []string{
	"Authorization", "Proxy-Authorization", "Proxy-Authenticate", "Cookie", "Forwarded", "Via", "Tailscale-User-Login",
	"X-Real-Ip", "X-Client-Ip", "X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Http-Method-Override",
	"X-Http-Method", "X-Method-Override", auditIDHeader,
	// With one of these, net/http may send any request twice.
	"Idempotency-Key", "X-Idempotency-Key",
}

// identityPrefixes are prefixes of further identity headers.
var identityPrefixes = []string{"Impersonate-", "X-Remote-", "X-Forwarded-", "X-Ssl-", "X-Auth-"}

// tokenProtocol is how a browser sends a bearer token with a WebSocket request.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// stripIdentity removes the caller's identity from a request, and everything but the IDs from its trace headers.
func stripIdentity(header http.Header) {
	for _, name := range identityHeaders {
		header.Del(name)
	}
	for name := range header {
		for _, prefix := range identityPrefixes {
			// Some names are not in canonical form.
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				delete(header, name)
			}
		}
	}
	stripTokenProtocol(header)
	trace.SanitizeHeaders(header)
}

func stripTokenProtocol(header http.Header) {
	const name = "Sec-Websocket-Protocol"
	values := header.Values(name)
	if len(values) == 0 {
		return
	}
	var kept []string
	for _, value := range values {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, tokenProtocol) {
				kept = append(kept, protocol)
			}
		}
	}
	header.Del(name)
	if len(kept) > 0 {
		header.Set(name, strings.Join(kept, ", "))
	}
}

// stripResponse removes headers that would make a caller store something for the hub's address.
func stripResponse(header http.Header) {
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Www-Authenticate", "Proxy-Authenticate"} {
		header.Del(name)
	}
}

// wantsUpgrade reports whether the caller requests an upgrade to WebSocket or SPDY.
func wantsUpgrade(header http.Header) bool {
	return header.Get("Upgrade") != "" && httpguts.HeaderValuesContainsToken(header.Values("Connection"), "upgrade")
}
