package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// credentials returns the TLS configuration for each attempt, and the function that renews the certificate in a session.
func (a *agent) credentials(ctx context.Context) (func(server string) (*tls.Config, error), func(context.Context, enroll.Client) error) {
	if a.cfg.Certificates == nil || a.cfg.TLS == nil {
		return a.cfg.TLS, nil
	}
	k := a.newCertRenewer()
	return func(server string) (*tls.Config, error) { return k.tls(ctx, server) }, k.run
}

// tls returns the TLS configuration. If there is no valid certificate but a join token, the agent first joins. Each
// attempt checks this, so the token can be added at any time.
func (k *certRenewer) tls(ctx context.Context, server string) (*tls.Config, error) {
	cfg, err := k.agent.cfg.TLS(server)
	if err == nil && k.usable(cfg) {
		return cfg, nil
	}
	joined, joinErr := k.join(ctx)
	if joinErr != nil {
		return nil, fmt.Errorf("join the hub: %w", joinErr)
	}
	if !joined {
		return cfg, err // the hub refuses an expired certificate with a reason
	}
	// Wait for the watch to deliver the Secrets that were written.
	for end := k.now().Add(storedTimeout); k.now().Before(end) && ctx.Err() == nil; {
		if cfg, err = k.agent.cfg.TLS(server); err == nil && k.usable(cfg) {
			break
		}
		backoff.Sleep(ctx, 10*time.Millisecond)
	}
	return cfg, err
}

// storedTimeout bounds the time until the watch delivers a written Secret.
const storedTimeout = 5 * time.Second

// usable reports whether there is a client certificate that has not expired.
func (k *certRenewer) usable(cfg *tls.Config) bool {
	if cfg.GetClientCertificate == nil {
		return true
	}
	cert, err := cfg.GetClientCertificate(&tls.CertificateRequestInfo{})
	return err == nil && cert.Leaf != nil && k.now().Before(cert.Leaf.NotAfter)
}

// join exchanges a join token for a certificate, if needed and possible. It reports whether it did.
func (k *certRenewer) join(ctx context.Context) (bool, error) {
	a := k.agent
	j := enroll.ClusterJoin{Secrets: k.secrets, Token: k.names.Token, Client: k.names.Client, Authority: k.names.Authority,
		Join: grpc.JoinWith(grpc.ClientConfig{Proxy: a.cfg.Proxy, WebSocket: a.cfg.WebSocket, Explain: a.cfg.Explain}, nil)}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if needed, err := j.Needed(ctx); err != nil || !needed {
		return false, err
	}
	began := time.Now()
	answer, err := j.Do(ctx)
	if err != nil {
		return false, err
	}
	a.log.InfoContext(ctx, "Joined the hub", "mode", answer.Mode, "duration", time.Since(began).Round(time.Millisecond).String())
	if answer.Mode != string(a.cfg.Mode) {
		a.log.WarnContext(ctx, "Hub has registered this agent with a different mode, set --agent-mode", "hubMode", answer.Mode, "mode", a.cfg.Mode)
	}
	return true, nil
}

// joinTimeout bounds one attempt.
const joinTimeout = time.Minute
