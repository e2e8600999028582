package faultproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
)

// upgradeTransport reaches the API server: over HTTP/2 where it can, as its
// clients do, and over HTTP/1.1 for upgrades, which HTTP/2 does not have.
type upgradeTransport struct {
	common, upgrades *http.Transport
}

func newUpgradeTransport(roots *x509.CertPool) *upgradeTransport {
	transport := func(http2 bool) *http.Transport {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(http2)
		return &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			Protocols:           protocols,
			DisableCompression:  true, // bodies pass as they are
			MaxIdleConnsPerHost: 100,
		}
	}
	return &upgradeTransport{common: transport(true), upgrades: transport(false)}
}

func (t *upgradeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgrades.RoundTrip(r)
	}
	return t.common.RoundTrip(r)
}

func (t *upgradeTransport) CloseIdleConnections() {
	t.common.CloseIdleConnections()
	t.upgrades.CloseIdleConnections()
}

// upgradeWriter closes an upgraded connection when the request's context
// ends. ReverseProxy closes only its side to the API server then, and waits
// for a caller who may have nothing more to say.
type upgradeWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	}
	return conn, buf, err
}

// Unwrap is how http.ResponseController finds the other abilities.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
