package resource

import (
	"net/http"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// identityHeaders carry who somebody is, or make a proxy act differently. None of them crosses to the other side.
var identityHeaders = []string{
	"Authorization", "Proxy-Authorization", "Proxy-Authenticate", "Cookie", "Forwarded", "Via", "Tailscale-User-Login",
	"X-Real-Ip", "X-Client-Ip", "X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Http-Method-Override",
	"X-Http-Method", "X-Method-Override",
	// With one of these net/http takes any request for one that may be sent twice.
	"Idempotency-Key", "X-Idempotency-Key",
}

// identityPrefixes are those of which there are families.
var identityPrefixes = []string{"Impersonate-", "X-Remote-", "X-Forwarded-", "X-Ssl-", "X-Auth-"}

// tokenProtocol is how a browser hands a bearer token to an API server when it asks for a WebSocket.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// stripIdentity removes from a request whatever tells, or pretends to tell, who is asking, and of its trace all but the
// numbers.
func stripIdentity(header http.Header) {
	for _, name := range identityHeaders {
		header.Del(name)
	}
	for name := range header {
		for _, prefix := range identityPrefixes {
			// Names that net/http could not bring into canonical form are compared as they are.
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

// stripAnswer removes from an answer what would make a caller remember something about the hub's own address.
func stripAnswer(header http.Header) {
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Www-Authenticate", "Proxy-Authenticate"} {
		header.Del(name)
	}
}

// wantsUpgrade tells that the caller wants the connection for itself: a WebSocket or SPDY.
func wantsUpgrade(header http.Header) bool {
	if header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}
