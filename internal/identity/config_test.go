package identity

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

func TestHandshake_UsesTheCurrentMaterial(t *testing.T) {
	old, next := newAuthority(t, "old"), newAuthority(t, "new")
	hub, agent := old.issue(template("principal")).store(t), old.issue(template("agent-a")).store(t)
	server := ServerTLS(hub, nil)
	connect := func() (state tls.ConnectionState, serverErr, clientErr error) {
		t.Helper()
		client, err := ClientTLS(agent, "principal.example")
		must(t, err)
		return shake(t, server, client)
	}
	if state, serverErr, clientErr := connect(); serverErr != nil || clientErr != nil || state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "" {
		t.Fatal(serverErr, clientErr, state.Version)
	}
	// A CA is replaced: first both are trusted, then certificates change one by
	// one, then the old CA is removed. No process restarts, and every handshake works.
	must(t, hub.Update(nil, nil, append(encodeCert(old.cert), encodeCert(next.cert)...)))
	must(t, agent.Update(nil, nil, append(encodeCert(old.cert), encodeCert(next.cert)...)))
	renewed := next.issue(template("agent-a"))
	must(t, agent.Update(renewed.cert, renewed.key, nil))
	state, serverErr, clientErr := connect()
	if serverErr != nil || clientErr != nil || Fingerprint(state.PeerCertificates[0]) != Fingerprint(renewed.leaf(t)) {
		t.Fatal(serverErr, clientErr)
	}
	principal := next.issue(template("principal"))
	must(t, hub.Update(principal.cert, principal.key, encodeCert(next.cert)))
	must(t, agent.Update(nil, nil, encodeCert(next.cert)))
	if _, serverErr, clientErr := connect(); serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	stale := old.issue(template("agent-b"), next).store(t)
	client, err := ClientTLS(stale, "principal.example")
	must(t, err)
	if _, serverErr, _ := shake(t, server, client); serverErr == nil {
		t.Error("a certificate of the CA that is gone is accepted")
	}
}

func TestExplain_FailedHandshakeHasARemedy(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	hub := ca.issue(template("principal"))
	agent := ca.issue(template("agent-a"))
	valid := func(from, to time.Duration) *x509.Certificate {
		c := template("agent-old")
		c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
		return c
	}
	serverOnly := template("agent-a")
	serverOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	revoked := &Revocations{}
	banned := ca.issue(template("agent-banned"))
	_, err := revoked.Set([]string{Fingerprint(banned.leaf(t))})
	must(t, err)

	// Material of a Store is checked, so some of these go around it.
	client := func(p pems, name string) *tls.Config {
		pair, err := tls.X509KeyPair(p.cert, p.key)
		must(t, err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(p.ca)
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: pool, NextProtos: []string{"h2"},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	without := client(agent, "principal.example")
	without.GetClientCertificate = nil
	older := client(agent, "principal.example")
	older.MaxVersion = tls.VersionTLS12
	trusting := stranger.issue(template("agent-x"))
	trusting.ca = encodeCert(ca.cert)

	for _, test := range []struct {
		title         string
		client        *tls.Config
		onHub, onEdge string
	}{
		{"expired", client(ca.issue(valid(-9*time.Hour, -time.Hour)), "principal.example"),
			`the certificate of the agent (subject "CN=agent-old", issued by "CN=ca"`, "rejects the certificate of this agent (Secret argocd-agent-client-tls on this cluster) as expired or not yet valid"},
		{"not yet valid", client(ca.issue(valid(time.Hour, 9*time.Hour)), "principal.example"),
			"which is not now", "as expired or not yet valid"},
		{"unknown CA", client(trusting, "principal.example"),
			`issued by "CN=stranger"`, "does not trust the CA that signed the certificate of this agent"},
		{"no certificate", without,
			"the agent presents no certificate", "requires a certificate and this agent presented none"},
		{"revoked", client(banned, "principal.example"),
			"is revoked: it is listed in ConfigMap argocd-agent-tls-blocklist", "see its log"},
		{"not for clients", client(ca.issue(serverOnly), "principal.example"),
			"has the wrong key usage", "does not accept the certificate of this agent"},
		{"wrong name", client(agent, "hub.example"),
			"the agent does not accept the certificate of the principal", `is for principal.example, 127.0.0.1, not for "hub.example"`},
		{"principal's CA unknown", client(stranger.issue(template("agent-a")), "principal.example"),
			"the agent does not accept the certificate of the principal", "is not signed by a CA that this agent trusts"},
		{"TLS too old", older,
			"have no TLS version in common", "have no TLS version in common"},
	} {
		t.Run(test.title, func(t *testing.T) {
			_, onHub, onEdge := shake(t, ServerTLS(hub.store(t), revoked), test.client)
			if onHub == nil || onEdge == nil {
				t.Fatalf("it worked: %v, %v", onHub, onEdge)
			}
			if text := ExplainServer(onHub).Error(); !strings.Contains(text, test.onHub) {
				t.Errorf("on the hub:\n  %s\nfrom: %v\nnot:  %s", text, onHub, test.onHub)
			}
			if text := ExplainClient(onEdge).Error(); !strings.Contains(text, test.onEdge) {
				t.Errorf("on the agent:\n  %s\nfrom: %v\nnot:  %s", text, onEdge, test.onEdge)
			}
		})
	}
}

func TestServerTLS_KeepsOtherSettings(t *testing.T) {
	ca := newAuthority(t, "ca")
	cfg := ServerTLS(ca.issue(template("principal")).store(t), nil)
	cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	cfg.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	client, err := ClientTLS(ca.issue(template("agent-a")).store(t), "127.0.0.1")
	must(t, err)
	client.MinVersion = tls.VersionTLS12
	state, serverErr, clientErr := shake(t, cfg, client)
	if serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	if state.Version != tls.VersionTLS12 || state.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 {
		t.Errorf("version %x, suite %x", state.Version, state.CipherSuite)
	}
}

func TestServerTLS_RefusesWithoutMaterial(t *testing.T) {
	ca := newAuthority(t, "ca")
	agent := ca.issue(template("agent-a"))
	client, err := ClientTLS(agent.store(t), "principal.example")
	must(t, err)
	if _, serverErr, _ := shake(t, ServerTLS(NewStore("Secret x"), nil), client); serverErr == nil || !strings.Contains(serverErr.Error(), "Secret x: no certificate yet") {
		t.Errorf("error %v", serverErr)
	}
	hub := ca.issue(template("principal"))
	hub.ca = nil
	if _, serverErr, _ := shake(t, ServerTLS(hub.store(t), nil), client); serverErr == nil || !strings.Contains(serverErr.Error(), "no CA to verify agents") {
		t.Errorf("error %v", serverErr)
	}
}
