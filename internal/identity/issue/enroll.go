package issue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// maxClockSkew is how far the clock of a workload cluster may differ from the hub's when it joins.
const maxClockSkew = 5 * time.Minute

func refused(format string, args ...any) error {
	return &enroll.Error{Message: fmt.Sprintf(format, args...)}
}

// Join implements enroll.Issuer. The token is checked first, so that a caller without one learns nothing. The
// request is checked before the token is redeemed.
func (i *Issuer) Join(ctx context.Context, r enroll.JoinRequest) (enroll.Joined, error) {
	token, err := i.checkToken(ctx, r)
	if err != nil {
		return enroll.Joined{}, err
	}
	if skew := r.Clock.Sub(i.now()); skew.Abs() > maxClockSkew {
		direction := "ahead of"
		if skew < 0 {
			direction = "behind"
		}
		return enroll.Joined{}, refused("the clock of this cluster is %s %s the hub's, so certificates would be expired or not yet valid: "+
			"set the clocks right (NTP) and try again; the token is still valid", skew.Abs().Round(time.Second), direction)
	}
	if err := i.checkIdentity(r.Agent); err != nil {
		return enroll.Joined{}, refused("%v", err)
	}
	if err := i.checkAllowed(ctx, r.Agent, token.Mode); err != nil {
		return enroll.Joined{}, err
	}
	grant, err := i.manager.Redeem(ctx, r.TokenID, r.TokenValue, r.Agent, r.Request)
	if err := enrollError(err); err != nil {
		return enroll.Joined{}, err
	}
	tokenValid := func() error {
		_, err := i.checkToken(ctx, r)
		return err
	}
	if err := i.agents.Register(ctx, grant, tokenValid); err != nil {
		return enroll.Joined{}, err
	}
	issued, err := i.sign(ctx, r.Agent, r.Request, "joined", r.Remote, func(entry pki.RecordEntry) error {
		return i.agents.RecordJoined(ctx, r.Agent, entry)
	})
	return enroll.Joined{Certificate: issued, Mode: grant.Mode}, err
}

func (i *Issuer) checkToken(ctx context.Context, r enroll.JoinRequest) (pki.JoinGrant, error) {
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

func (i *Issuer) Renew(ctx context.Context, r enroll.RenewRequest) (enroll.Certificate, error) {
	if skew := r.Clock.Sub(i.now()); skew.Abs() > maxClockSkew {
		i.log.WarnContext(ctx, "Clocks of agent and hub differ", "agent", r.Agent, "agentIsAhead", skew.Round(time.Second).String())
	}
	if err := i.checkIdentity(r.Agent); err != nil {
		return enroll.Certificate{}, refused("%v", err)
	}
	if err := i.checkAllowed(ctx, r.Agent, ""); err != nil {
		return enroll.Certificate{}, err
	}
	with, err := i.presented(ctx, r)
	if err != nil {
		return enroll.Certificate{}, err
	}
	return i.sign(ctx, r.Agent, r.Request, "renewed", r.Fingerprint, func(entry pki.RecordEntry) error {
		entry.KeyStored = r.KeyStored
		return i.agents.RecordRenewed(ctx, r.Agent, with, entry)
	})
}

// presented returns the certificate with which an agent renews. If a CA of the hub did not sign it, or the hub would sign it for
// another agent, only its fingerprint is known.
func (i *Issuer) presented(ctx context.Context, r enroll.RenewRequest) (pki.RecordEntry, error) {
	only := pki.RecordEntry{Fingerprint: r.Fingerprint}
	if r.Certificate == nil || r.Certificate.Subject.CommonName != r.Agent {
		return only, nil
	}
	a, err := i.manager.Authority(ctx)
	if errors.Is(err, pki.ErrNoAuthority) {
		return only, nil // sign reports it
	}
	if err != nil {
		return only, err
	}
	if e := a.EntryOf(r.Certificate); e.Fingerprint == r.Fingerprint {
		return e, nil
	}
	return only, nil
}

func (i *Issuer) checkAllowed(ctx context.Context, agent, mode string) error {
	reason, err := i.agents.DenyReason(ctx, agent, mode)
	if err == nil && reason != "" {
		err = refused("%s", reason)
	}
	return err
}

func (i *Issuer) sign(ctx context.Context, agent string, request []byte, reason, from string, record func(pki.RecordEntry) error) (enroll.Certificate, error) {
	issued, err := i.manager.Sign(ctx, request, agent)
	if invalid, ok := errors.AsType[*pki.RequestError](err); ok {
		return enroll.Certificate{}, refused("%v", invalid)
	}
	if errors.Is(err, pki.ErrNoKey) || errors.Is(err, pki.ErrNoAuthority) {
		return enroll.Certificate{}, refused("the hub does not issue certificates: %v", err)
	}
	if err != nil {
		return enroll.Certificate{}, err
	}
	entry, err := pki.EntryOf(issued.Cert)
	if err != nil {
		return enroll.Certificate{}, err
	}
	if err := record(entry); err != nil {
		return enroll.Certificate{}, err
	}
	i.log.InfoContext(ctx, "Issued agent certificate", "agent", agent, "reason", reason, "from", from, "fingerprint", entry.Fingerprint, "expires", entry.Expires.UTC())
	return enroll.Certificate{Chain: issued.Cert, Bundle: issued.Bundle, Clock: i.now()}, nil
}

func (i *Issuer) Trust() (enroll.Trust, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trust == nil {
		return enroll.Trust{}, i.changed
	}
	t := enroll.Trust{Bundle: i.trust.BundlePEM()}
	if i.trust.CanIssue() {
		pin := i.trust.Pin()
		t.Issuer = pin[:]
	}
	return t, i.changed
}
