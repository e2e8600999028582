package grpc

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// connect opens a TCP connection to the hub, directly or through an HTTP proxy. TLS runs inside of it, so that a proxy
// sees neither identity nor content.
func (a *attempt) connect(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := a.proxyFor(address)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		conn, err := a.cfg.Dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		setOptions(conn, a.cfg.Keepalive.Timeout)
		return conn, nil
	}
	conn, err := a.dialProxy(ctx, proxy)
	if err != nil {
		return nil, fmt.Errorf("dial proxy %s: %w", proxy.Redacted(), err)
	}
	tunnel, err := connectThrough(ctx, conn, proxy, address)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect through proxy %s to %s: %w", proxy.Redacted(), address, err)
	}
	return tunnel, nil
}

func (a *attempt) proxyFor(address string) (*url.URL, error) {
	if a.cfg.Proxy == nil || a.cfg.TLS == nil {
		return nil, nil //nolint:nilnil // no proxy, as in http.Transport
	}
	proxy, err := a.cfg.Proxy(&http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: "https", Host: address}, Host: address})
	if err != nil {
		return nil, fmt.Errorf("find proxy for %s (check HTTPS_PROXY and NO_PROXY): %w", address, err)
	}
	if proxy != nil && proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, fmt.Errorf("proxy %s: scheme %q is not supported, use http or https", proxy.Redacted(), proxy.Scheme)
	}
	return proxy, nil
}

func (a *attempt) dialProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	conn, err := a.cfg.Dial(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	if err != nil {
		return nil, err
	}
	setOptions(conn, a.cfg.Keepalive.Timeout)
	if proxy.Scheme == "http" {
		return conn, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.cfg.ProxyTLS != nil {
		cfg = a.cfg.ProxyTLS.Clone()
	}
	cfg.ServerName = cmp.Or(cfg.ServerName, proxy.Hostname())
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// maxProxyResponse bounds the response of a proxy.
const maxProxyResponse = 64 << 10

// connectThrough asks a proxy to connect to the address, and returns the connection.
func connectThrough(ctx context.Context, conn net.Conn, proxy *url.URL, address string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxProxyResponse}
	reader := bufio.NewReader(limited)
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	_ = resp.Body.Close()
	if !stop() {
		return nil, context.Cause(ctx)
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusProxyAuthRequired:
		return nil, errors.New("authentication required: set user and password in HTTPS_PROXY as http://user:password@host")
	default:
		return nil, fmt.Errorf("response %s", resp.Status)
	}
	limited.N = 1<<63 - 1
	if reader.Buffered() == 0 {
		return conn, nil
	}
	return &readerConn{conn, reader}, nil
}
