package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
	"github.com/argocd-agent/argocd-agent/lab/spiffetest"
)

// Both commands run with a Workload API each. Their components only perform a TLS handshake.
func TestSPIFFE_ComponentsAuthenticateEachOther(t *testing.T) {
	ca := newAuthority(t)
	const hubID = "spiffe://example.org/principal"
	hubAPI, agentAPI := spiffetest.New(t), spiffetest.New(t)
	for id, api := range map[string]*spiffetest.API{hubID: hubAPI, "spiffe://example.org/agent/w1": agentAPI} {
		uri, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		_, _, cert, key := ca.sign(t, &x509.Certificate{URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
		api.Register(t, id, cert, key, ca.cert, nil)
	}
	address := make(chan string, 1)
	named := make(chan string, 1)
	start := components{
		principal: func(ctx context.Context, cfg principal.Config) error { return acceptOne(ctx, cfg, address, named) },
		agent: func(ctx context.Context, cfg agent.Config) error {
			if cfg.Certificates != nil || cfg.Secrets != nil {
				return errors.New("unexpected certificates from Secrets")
			}
			return dialOnce(ctx, cfg, <-address)
		},
	}
	var wg sync.WaitGroup
	run := func(env []string, args ...string) {
		wg.Go(func() {
			var out bytes.Buffer
			p := &program{env: env, stdout: &out, stderr: &out, start: start}
			if code := cmdline.Report(&out, programName, p.run(t.Context(), append(args, "--kubeconfig", kubeconfig(t), "--metrics-port", "0", "--healthz-port", "0"))); code != 0 {
				t.Errorf("%s: exit code %d: %s", args[0], code, out.String())
			}
		})
	}
	run([]string{"SPIFFE_ENDPOINT_SOCKET=" + hubAPI.Socket}, "principal", "--auth", "mtls:uri:^spiffe://example.org/agent/([^/]+)$",
		"--listen-host", "127.0.0.1", "--listen-port", freePort(t), "--enable-resource-proxy=false", "--redis-proxy-port", "0")
	run(nil, "agent", "--agent-mode", "managed", "--server-address", "hub.example", "--spiffe-endpoint-socket", agentAPI.Socket, "--spiffe-server-id", hubID)
	wg.Wait()
	select {
	case name := <-named:
		if name != "w1" {
			t.Errorf("the agent is authenticated as %q", name)
		}
	default:
		t.Error("no agent was authenticated")
	}
}

// acceptOne is a principal that accepts one connection and reports the name of the agent.
func acceptOne(ctx context.Context, cfg principal.Config, address, named chan<- string) error {
	for _, err := cfg.TLS.GetConfigForClient(&tls.ClientHelloInfo{}); err != nil; _, err = cfg.TLS.GetConfigForClient(&tls.ClientHelloInfo{}) {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	address <- cfg.Listener.Addr().String()
	conn, err := cfg.Listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	secure := tls.Server(conn, cfg.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		return cfg.Explain(err)
	}
	state := secure.ConnectionState()
	who, err := cfg.Authenticate(transport.Credentials{RemoteAddr: conn.RemoteAddr(), TLS: &state})
	if err != nil {
		return err
	}
	named <- who.Agent
	_, err = secure.Write([]byte{1})
	return err
}

// dialOnce is an agent that connects and waits for one byte.
func dialOnce(ctx context.Context, cfg agent.Config, address string) error {
	secure, err := cfg.TLS("hub.example:443")
	for ; err != nil; secure, err = cfg.TLS("hub.example:443") {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	secure.NextProtos = []string{"h2"}
	if _, err := tls.Client(conn, secure).Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the principal: %w", cfg.Explain(err))
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Millisecond):
		return nil
	}
}
