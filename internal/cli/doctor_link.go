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

// linkTimeout bounds a try to reach the principal.
const linkTimeout = 15 * time.Second

// link tries to reach the principal from here as the agent would: the name, the way there, and TLS with the agent's own
// certificate.
func (e *checkRun) link(ctx context.Context, spoke *cluster, address string, bundle []*x509.Certificate, set *settings) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		e.problem("address", "set --server-address and --server-port of the agent", "%q is not of the form host:port", address)
		return
	}
	proxy, via := proxyFor(e.program.Env, set, address)
	if proxy == nil && net.ParseIP(host) == nil {
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			if answer, ok := errors.AsType[*net.DNSError](err); ok {
				err = errors.New(answer.Err) // without the resolver's address
			}
			e.problem("dns", "correct the agent's --server-address, or the DNS entry of the hub", "%s cannot be looked up from here: %v", host, err)
			return
		}
		e.ok("dns", "%s is %s", host, strings.Join(found, ", "))
	}
	client, err := spoke.clientTLS(ctx, host, bundle)
	if err != nil {
		e.unknown("connection", err)
		return
	}
	if set.on("enable-websocket") {
		if err := probeWebSocket(ctx, address, proxy, client); err != nil {
			e.problem("connection", "see that the principal has --enable-websocket, and that what stands before it passes WebSockets on to it; where HTTP/2 and TLS get through, the agent needs none",
				"%s cannot be reached from here in a WebSocket%s: %v", address, via, err)
			return
		}
		e.ok("connection", "%s answers%s in a WebSocket, and believes the agent's certificate", address, via)
		return
	}
	protocol, err := shake(ctx, address, proxy, client)
	switch {
	case err == nil && protocol == "h2":
		e.ok("connection", "%s answers%s, and believes the agent's certificate", address, via)
	case probeWebSocket(ctx, address, proxy, client) == nil:
		e.problem("connection", "let TLS through to the principal, rather than ending it in a proxy or load balancer; or let the agent use WebSockets: --enable-websocket (agent.settings.enable-websocket=true of the chart)",
			"%s answers%s in a WebSocket, but not otherwise: %v", address, via, whyNot(protocol, err))
	case err == nil:
		e.problem("connection", "let TLS through to the principal, rather than ending it in a proxy or load balancer; or use WebSockets: --enable-websocket of principal and agents", "%s answers%s, but not with HTTP/2", address, via)
	default:
		e.problem("connection", "see whether "+address+" is the principal's own port, that nothing in between ends TLS (or use WebSockets: --enable-websocket of principal and agents), and what firewalls and proxies let through",
			"%s cannot be reached from here%s: %v", address, via, whyNot(protocol, err))
	}
}

func whyNot(protocol string, err error) error {
	if err == nil {
		return fmt.Errorf("it speaks %s rather than HTTP/2", cmp.Or(protocol, "HTTP/1.1"))
	}
	return identity.ExplainClient(unwrapURL(err))
}

// probeWebSocket tries whether the principal answers inside a WebSocket.
func probeWebSocket(ctx context.Context, address string, proxy *url.URL, client *tls.Config) error {
	return grpc.Probe(ctx, grpc.ClientConfig{Address: address, WebSocket: true, TLS: func() (*tls.Config, error) { return client.Clone(), nil }, Explain: identity.ExplainClient,
		Proxy: http.ProxyURL(proxy), OpenTimeout: linkTimeout / 2})
}

// clientTLS is the TLS of the agent: its certificate, and whom it believes.
func (c *cluster) clientTLS(ctx context.Context, host string, bundle []*x509.Certificate) (*tls.Config, error) {
	pool := x509.NewCertPool()
	for _, cert := range bundle {
		pool.AddCert(cert)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: pool}
	s, err := secrets{c}.Get(ctx, pki.ClientSecret)
	if err != nil || s == nil {
		return nil, cmp.Or(err, fmt.Errorf("the agent has no certificate in Secret %s yet", pki.ClientSecret))
	}
	pair, err := tls.X509KeyPair(s.Data[pki.CertKey], s.Data[pki.KeyKey])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s: %w", pki.ClientSecret, err)
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return cfg, nil
}

// proxyFor finds the proxy between the agent and the hub: the agent's, else ours.
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
	return proxy, " through the proxy " + proxy.Redacted()
}

// shake connects, and tells which protocol was agreed on. What is answered to a request does not matter.
func shake(ctx context.Context, address string, proxy *url.URL, client *tls.Config) (protocol string, err error) {
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: client, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	due := 1
	if proxy != nil && proxy.Scheme == "https" {
		due = 2 // the first is with the proxy
	}
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(state tls.ConnectionState, err error) {
		if err == nil {
			protocol = state.NegotiatedProtocol
			due--
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
	if due == 0 && !(errors.As(err, &refused) && refused.Op == "remote error") { // TLS 1.3 tells a client that it is refused only afterwards
		return protocol, nil
	}
	return "", err
}

func unwrapURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
