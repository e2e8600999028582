package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// linkTimeout limits a connection attempt.
const linkTimeout = 15 * time.Second

// link connects to the principal from this machine with the settings and the certificate of the agent.
func (e *checkRun) link(ctx context.Context, spoke *cluster, address string, bundle []*x509.Certificate, set *settings) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		e.problem("address", "set --server-address and --server-port of the agent", "%q does not have the form host:port", address)
		return
	}
	proxy, via := proxyFor(e.program.Env, set, address)
	if proxy == nil && net.ParseIP(host) == nil {
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			if answer, ok := errors.AsType[*net.DNSError](err); ok {
				err = errors.New(answer.Err) // omit the address of the resolver
			}
			e.problem("dns", "correct --server-address of the agent or the DNS record of the hub", "cannot resolve %s from this machine: %v", host, err)
			return
		}
		e.ok("dns", "%s is %s", host, strings.Join(found, ", "))
	}
	client, err := spoke.clientTLS(ctx, host, bundle)
	if err != nil {
		e.skipped("connection", err)
		return
	}
	if set.on("enable-websocket") {
		if err := probeWebSocket(ctx, address, proxy, client); err != nil {
			e.problem("connection", "set --enable-websocket of the principal and allow WebSockets in proxies; or unset --enable-websocket of the agent if HTTP/2 and TLS reach the principal",
				"cannot connect to %s from this machine with a WebSocket%s: %v", address, via, err)
			return
		}
		e.ok("connection", "%s accepts the certificate of the agent%s with a WebSocket", address, via)
		return
	}
	protocol, err := negotiate(ctx, address, proxy, client)
	switch {
	case err == nil && protocol == "h2":
		e.ok("connection", "%s accepts the certificate of the agent%s", address, via)
	case probeWebSocket(ctx, address, proxy, client) == nil:
		e.problem("connection", "do not terminate TLS in a proxy or load balancer; or set --enable-websocket of the agent (agent.settings.enable-websocket=true of the chart)",
			"%s accepts connections%s only with a WebSocket: %v", address, via, whyNot(protocol, err))
	case err == nil:
		e.problem("connection", "do not terminate TLS in a proxy or load balancer; or set --enable-websocket of principal and agents", "%s accepts connections%s, but without HTTP/2", address, via)
	default:
		e.problem("connection", "check that "+address+" is the port of the principal, that firewalls and proxies allow it, and that no proxy terminates TLS (or set --enable-websocket of principal and agents)",
			"cannot connect to %s from this machine%s: %v", address, via, whyNot(protocol, err))
	}
}

func whyNot(protocol string, err error) error {
	if err == nil {
		return fmt.Errorf("it uses %s, not HTTP/2", cmp.Or(protocol, "HTTP/1.1"))
	}
	return identity.ExplainClient(err)
}

func probeWebSocket(ctx context.Context, address string, proxy *url.URL, client *tls.Config) error {
	return grpc.Probe(ctx, grpc.ClientConfig{Address: address, WebSocket: true, TLS: func() (*tls.Config, error) { return client.Clone(), nil }, Explain: identity.ExplainClient,
		Proxy: http.ProxyURL(proxy), OpenTimeout: linkTimeout / 2})
}

// clientTLS returns the TLS configuration of the agent.
func (c *cluster) clientTLS(ctx context.Context, host string, bundle []*x509.Certificate) (*tls.Config, error) {
	pool := x509.NewCertPool()
	for _, cert := range bundle {
		pool.AddCert(cert)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: pool}
	s, err := secrets{c}.Get(ctx, pki.ClientSecret)
	if err != nil || s == nil {
		return nil, cmp.Or(err, fmt.Errorf("Secret %s not found", pki.ClientSecret))
	}
	pair, err := tls.X509KeyPair(s.Data[pki.CertKey], s.Data[pki.KeyKey])
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %w", pki.ClientSecret, err)
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return cfg, nil
}

// proxyFor returns the HTTPS proxy to the hub: that of the agent, then that of this machine.
func proxyFor(environ []string, set *settings, address string) (proxy *url.URL, via string) {
	env := environment(environ)
	value := func(name string) string {
		return cmp.Or(set.env[name], set.env[strings.ToLower(name)], env[name], env[strings.ToLower(name)])
	}
	config := &httpproxy.Config{HTTPSProxy: value("HTTPS_PROXY"), NoProxy: value("NO_PROXY")}
	proxy, err := config.ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil || proxy == nil {
		return nil, ""
	}
	return proxy, " through proxy " + proxy.Redacted()
}

// negotiate connects and returns the negotiated protocol. The response does not matter.
func negotiate(ctx context.Context, address string, proxy *url.URL, client *tls.Config) (protocol string, err error) {
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: client, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	handshakes := 1
	if proxy != nil && proxy.Scheme == "https" {
		handshakes = 2 // the first is with the proxy
	}
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(state tls.ConnectionState, err error) {
		if err == nil {
			protocol = state.NegotiatedProtocol
			handshakes--
		}
	}}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "https://"+address+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
		return protocol, nil
	}
	var refused *net.OpError
	if handshakes == 0 && !(errors.As(err, &refused) && refused.Op == "remote error") { // TLS 1.3 refuses a client after the handshake
		return protocol, nil
	}
	return "", err
}
