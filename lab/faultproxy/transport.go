package faultproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
)

// upgradeTransport connects to the API server with HTTP/2 and, for upgrades, which HTTP/2 does not have, with HTTP/1.1.
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
			DisableCompression:  true, // forward bodies unchanged
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

// upgradeWriter closes an upgraded connection when the context of the request ends. ReverseProxy then closes only its
// connection to the API server and waits for the caller.
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

// Unwrap is for http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
