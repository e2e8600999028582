package issue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// maxClockSkew is how far the clock of a workload cluster may differ from the hub's when it joins.
const maxClockSkew = 5 * time.Minute

func refused(format string, args ...any) error {
	return &transport.EnrollError{Message: fmt.Sprintf(format, args...)}
}

// Join implements transport.Enroller. The token is checked first, so that a caller without one learns nothing. The
// request is checked before the token is redeemed.
func (i *Issuer) Join(ctx context.Context, r transport.JoinRequest) (transport.Joined, error) {
	token, err := i.checkToken(ctx, r)
	if err != nil {
		return transport.Joined{}, err
	}
	if skew := r.Clock.Sub(i.now()); skew.Abs() > maxClockSkew {
		direction := "ahead of"
		if skew < 0 {
			direction = "behind"
		}
		return transport.Joined{}, refused("the clock of this cluster is %s %s the hub's, so certificates would be expired or not yet valid: "+
			"set the clocks right (NTP) and try again; the token is still valid", skew.Abs().Round(time.Second), direction)
	}
	if err := i.checkIdentity(r.Agent); err != nil {
		return transport.Joined{}, refused("%v", err)
	}
	if err := i.checkAllowed(ctx, r.Agent, token.Mode); err != nil {
		return transport.Joined{}, err
	}
	grant, err := i.manager.Redeem(ctx, r.TokenID, r.TokenValue, r.Agent, r.Request)
	if err := enrollError(err); err != nil {
		return transport.Joined{}, err
	}
	tokenValid := func() error {
		_, err := i.checkToken(ctx, r)
		return err
	}
	if err := i.agents.Register(ctx, grant, tokenValid); err != nil {
		return transport.Joined{}, err
	}
	issued, err := i.sign(ctx, r.Agent, r.Request, "joined", r.Remote)
	return transport.Joined{Certificate: issued, Mode: grant.Mode}, err
}

func (i *Issuer) checkToken(ctx context.Context, r transport.JoinRequest) (pki.JoinGrant, error) {
	grant, err := i.manager.Check(ctx, r.TokenID, r.TokenValue, r.Agent)
	return grant, enrollError(err)
}

// enrollError converts a refusal, so that its message is sent to the agent.
func enrollError(err error) error {
	if refusal, ok := errors.AsType[*pki.RefusalError](err); ok {
		return refused("%s", refusal.Message)
	}
	return err
}

// Renew implements transport.Enroller.
func (i *Issuer) Renew(ctx context.Context, p transport.Peer, request []byte, clock time.Time) (transport.Certificate, error) {
	if skew := clock.Sub(i.now()); skew.Abs() > maxClockSkew {
		i.log.WarnContext(ctx, "Clocks of agent and hub differ", "agent", p.Agent, "agentIsAhead", skew.Round(time.Second).String())
	}
	if err := i.checkIdentity(p.Agent); err != nil {
		return transport.Certificate{}, refused("%v", err)
	}
	if err := i.checkAllowed(ctx, p.Agent, ""); err != nil {
		return transport.Certificate{}, err
	}
	return i.sign(ctx, p.Agent, request, "renewed", p.Fingerprint)
}

func (i *Issuer) checkAllowed(ctx context.Context, agent, mode string) error {
	reason, err := i.agents.DenyReason(ctx, agent, mode)
	if err == nil && reason != "" {
		err = refused("%s", reason)
	}
	return err
}

func (i *Issuer) sign(ctx context.Context, agent string, request []byte, reason, from string) (transport.Certificate, error) {
	issued, err := i.manager.Sign(ctx, request, agent)
	if invalid, ok := errors.AsType[*pki.RequestError](err); ok {
		return transport.Certificate{}, refused("%v", invalid)
	}
	if errors.Is(err, pki.ErrNoKey) || errors.Is(err, pki.ErrNoAuthority) {
		return transport.Certificate{}, refused("the hub does not issue certificates: %v", err)
	}
	if err != nil {
		return transport.Certificate{}, err
	}
	certs, err := pki.Certificates(issued.Cert)
	if err != nil {
		return transport.Certificate{}, err
	}
	fingerprint := pki.Describe(certs[0]).Fingerprint
	if err := i.agents.RecordIssued(ctx, agent, fingerprint, certs[0].NotAfter); err != nil {
		return transport.Certificate{}, err
	}
	i.log.InfoContext(ctx, "Issued agent certificate", "agent", agent, "reason", reason, "from", from, "fingerprint", fingerprint, "expires", certs[0].NotAfter.UTC())
	return transport.Certificate{Chain: issued.Cert, Bundle: issued.Bundle, Clock: i.now()}, nil
}

// Trust implements transport.Enroller.
func (i *Issuer) Trust() (transport.Trust, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trust == nil {
		return transport.Trust{}, i.changed
	}
	t := transport.Trust{Bundle: i.trust.BundlePEM()}
	if i.trust.CanIssue() {
		pin := i.trust.Pin()
		t.Issuer = pin[:]
	}
	return t, i.changed
}
