package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// credentials are what the connection needs: TLS for each attempt, and what keeps
// up the certificate while there is a session.
func (a *agent) credentials(ctx context.Context) (func() (*tls.Config, error), func(context.Context, *transport.CertificateClient) error) {
	if a.cfg.Certificates == nil || a.cfg.TLS == nil {
		return a.cfg.TLS, nil
	}
	k := a.newKeeper()
	return func() (*tls.Config, error) { return k.tls(ctx) }, k.run
}

// tls is what to connect with. An agent that has no certificate, or one that has
// expired, looks whether it was given a token: then it joins. So it does with
// each attempt, whenever somebody brings one.
func (k *certRenewer) tls(ctx context.Context) (*tls.Config, error) {
	cfg, err := k.agent.cfg.TLS()
	if err == nil && k.good(cfg) {
		return cfg, nil
	}
	joined, joinErr := k.join(ctx)
	if joinErr != nil {
		return nil, fmt.Errorf("cannot join the hub: %w", joinErr)
	}
	if !joined {
		return cfg, err // the hub will say what it thinks of it
	}
	// What was written is on its way back, by the watch.
	for end := k.now().Add(storedTimeout); k.now().Before(end) && ctx.Err() == nil; {
		if cfg, err = k.agent.cfg.TLS(); err == nil && k.good(cfg) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return cfg, err
}

// storedTimeout is how long it may take to read what was just written.
const storedTimeout = 5 * time.Second

// good reports whether there is a certificate that has not expired.
func (k *certRenewer) good(cfg *tls.Config) bool {
	if cfg.GetClientCertificate == nil {
		return true
	}
	cert, err := cfg.GetClientCertificate(&tls.CertificateRequestInfo{})
	return err == nil && cert.Leaf != nil && k.now().Before(cert.Leaf.NotAfter)
}

// join exchanges a token for a certificate, if there is one and not the other. It
// reports whether it did.
func (k *certRenewer) join(ctx context.Context) (bool, error) {
	a := k.agent
	j := transport.ClusterJoin{Secrets: k.secrets, Token: k.names.Token, Client: k.names.Client, Authority: k.names.Authority,
		Proxy: a.cfg.Proxy, WebSocket: a.cfg.WebSocket, Explain: a.cfg.Explain, Log: a.log}
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
	a.log.InfoContext(ctx, "joined the hub", "mode", answer.Mode, "took", time.Since(began).Round(time.Millisecond).String())
	if answer.Mode != string(a.cfg.Mode) {
		a.log.WarnContext(ctx, "the hub has registered this agent in another mode: set --agent-mode to it", "hub", answer.Mode, "here", a.cfg.Mode)
	}
	return true, nil
}

// joinTimeout bounds one attempt.
const joinTimeout = time.Minute
