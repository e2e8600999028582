package identity

import (
	"crypto/tls"
	"testing"
)

func TestAnyClientTLS_UsesTheCurrentCertificateAndVerifiesNoClient(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	hub := ca.issue(template("principal")).store(t)
	base := ServerTLS(hub, nil)
	server := AnyClientTLS(base)
	known, err := ClientTLS(ca.issue(template("agent-a")).store(t), "principal.example")
	must(t, err)
	client := known.Clone()
	client.GetClientCertificate, client.NextProtos = nil, []string{"http/1.1"}
	if state, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil || len(state.PeerCertificates) != 0 || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("without a certificate: %v, %v, %q", serverErr, clientErr, state.NegotiatedProtocol)
	}
	other := stranger.issue(template("user"))
	pair, err := tls.X509KeyPair(other.cert, other.key)
	must(t, err)
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	if state, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil || len(state.PeerCertificates) != 1 || len(state.VerifiedChains) != 0 {
		t.Errorf("with the certificate of another CA: %v, %v", serverErr, clientErr)
	}
	if _, serverErr, _ := shake(t, base, client); serverErr == nil {
		t.Error("the port of agents accepts it too")
	}
}
