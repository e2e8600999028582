package principal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// maxSkew is how far the clock of a cluster may be from ours when it joins.
const maxSkew = 5 * time.Minute

func refused(format string, args ...any) error {
	return &transport.EnrollError{Message: fmt.Sprintf(format, args...)}
}

// Join implements link.Enroller. Everything that can be wrong with the request is
// found before the token is used up.
func (i *issuer) Join(ctx context.Context, r transport.JoinRequest) (transport.Joined, error) {
	// First of all: a stranger shall learn nothing else, and cause nothing else.
	check := func() (pki.JoinGrant, error) {
		who, err := i.manager.Check(ctx, r.TokenID, r.TokenValue, r.Agent)
		return who, enrollError(err)
	}
	token, err := check()
	if err != nil {
		return transport.Joined{}, err
	}
	if skew := r.Clock.Sub(i.now()); skew.Abs() > maxSkew {
		way := "ahead of"
		if skew < 0 {
			way = "behind"
		}
		return transport.Joined{}, refused("the clock of this cluster is %s %s the hub's, so certificates would be taken for expired or not yet valid: "+
			"set the clocks right (NTP) and try again; the token is still good", skew.Abs().Round(time.Second), way)
	}
	if err := i.checkIdentity(r.Agent); err != nil {
		return transport.Joined{}, refused("%v", err)
	}
	if err := i.admit(ctx, r.Agent, token.Mode); err != nil {
		return transport.Joined{}, err
	}
	who, err := i.manager.Redeem(ctx, r.TokenID, r.TokenValue, r.Agent, r.Request)
	if err := enrollError(err); err != nil {
		return transport.Joined{}, err
	}
	still := func() error {
		_, err := check()
		return err
	}
	if err := i.agents.register(ctx, who, still); err != nil {
		return transport.Joined{}, err
	}
	issued, err := i.sign(ctx, r.Agent, r.Request, "joined", r.Remote)
	return transport.Joined{Certificate: issued, Mode: who.Mode}, err
}

// enrollError makes of a refusal what the other side is told.
func enrollError(err error) error {
	if no, ok := errors.AsType[*pki.RefusalError](err); ok {
		return refused("%s", no.Message)
	}
	return err
}

// Renew implements link.Enroller.
func (i *issuer) Renew(ctx context.Context, p transport.Peer, request []byte, clock time.Time) (transport.Certificate, error) {
	if skew := clock.Sub(i.now()); skew.Abs() > maxSkew {
		i.log.WarnContext(ctx, "the clock of an agent is wrong, or ours", "agent", p.Agent, "agentIsAhead", skew.Round(time.Second).String())
	}
	if err := i.checkIdentity(p.Agent); err != nil {
		return transport.Certificate{}, refused("%v", err)
	}
	if err := i.admit(ctx, p.Agent, ""); err != nil {
		return transport.Certificate{}, err
	}
	return i.sign(ctx, p.Agent, request, "renewed", p.Fingerprint)
}

func (i *issuer) admit(ctx context.Context, agent, mode string) error {
	why, err := i.agents.denyReason(ctx, agent, mode)
	if err == nil && why != "" {
		err = refused("%s", why)
	}
	return err
}

func (i *issuer) sign(ctx context.Context, agent string, request []byte, why, before string) (transport.Certificate, error) {
	issued, err := i.manager.Sign(ctx, request, agent)
	if bad, ok := errors.AsType[*pki.RequestError](err); ok {
		return transport.Certificate{}, refused("%v", bad)
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
	if err := i.agents.recordIssued(ctx, agent, fingerprint, certs[0].NotAfter); err != nil {
		return transport.Certificate{}, err
	}
	i.log.InfoContext(ctx, "issued a certificate to an agent", "agent", agent, "why", why, "from", before,
		"fingerprint", fingerprint, "expires", certs[0].NotAfter.UTC())
	return transport.Certificate{Chain: issued.Cert, Bundle: issued.Bundle, Clock: i.now()}, nil
}

// Trust implements link.Enroller.
func (i *issuer) Trust() (transport.Trust, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trust == nil {
		return transport.Trust{}, i.changed
	}
	t := transport.Trust{Bundle: i.trust.BundlePEM()}
	if i.trust.Issues() {
		pin := i.trust.Pin()
		t.Issuer = pin[:]
	}
	return t, i.changed
}

// agentObjects are registrations as Agent objects.
type agentObjects struct {
	client    *kube.Client
	namespace string
}

func (a agentObjects) ref(agent string) kind.Ref {
	return kind.Ref{Resource: agentResource, Namespace: a.namespace, Name: agent}
}

func (a agentObjects) get(ctx context.Context, name string) (*v1alpha1.Agent, error) {
	o, err := a.client.Get(ctx, a.ref(name))
	if err != nil || o == nil {
		return nil, err
	}
	var agent v1alpha1.Agent
	if err := json.Unmarshal(o.Raw(), &agent); err != nil {
		return nil, fmt.Errorf("read Agent %s: %w", name, err)
	}
	return &agent, nil
}

// denyReason implements registrations.
func (a agentObjects) denyReason(ctx context.Context, name, mode string) (string, error) {
	agent, err := a.get(ctx, name)
	if err != nil {
		return "", fmt.Errorf("read Agent %s: %w", name, err)
	}
	if agent == nil {
		return "", nil
	}
	return certificateDenial(agent, mode), nil
}

// certificateDenial tells why an agent shall have no certificate, or not in this mode
// if one is given; empty: it may.
func certificateDenial(agent *v1alpha1.Agent, mode string) string {
	name := agent.Name
	switch {
	case agent.DeletionTimestamp != nil:
		return fmt.Sprintf("the agent %s is being deleted on the hub: wait until it is gone, then ask for a new token", name)
	case agent.Annotations[v1alpha1.RetireAnnotation] != "":
		return fmt.Sprintf("the agent %s is retired on the hub, its cluster is said to be gone for good: delete the Agent, then ask for a new token", name)
	case agent.Spec.Suspended:
		return fmt.Sprintf("the agent %s is suspended on the hub: resume it with `argocd-agentctl agent resume %s`", name, name)
	case mode != "" && agent.Spec.Mode != "" && agent.Spec.Mode != mode:
		return fmt.Sprintf("the agent %s is %s on the hub, but the token says %s: make a token for mode %s, or delete the Agent first", name, agent.Spec.Mode, mode, agent.Spec.Mode)
	}
	return ""
}

// register implements registrations.
func (a agentObjects) register(ctx context.Context, who pki.JoinGrant, still func() error) error {
	for range 5 {
		agent, err := a.get(ctx, who.Agent)
		if err != nil {
			return fmt.Errorf("read Agent %s: %w", who.Agent, err)
		}
		if agent == nil {
			if err := still(); err != nil {
				return err
			}
			spec := v1alpha1.Spec{Mode: who.Mode, Cluster: v1alpha1.ClusterSecret{Labels: who.Labels}}
			_, err = a.client.Create(ctx, a.ref(who.Agent), map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind,
				"metadata": map[string]any{"name": who.Agent, "namespace": a.namespace}, "spec": spec})
		} else {
			if why := certificateDenial(agent, who.Mode); why != "" {
				return refused("%s", why)
			}
			_, err = a.client.Patch(ctx, a.ref(who.Agent), map[string]any{
				"metadata": map[string]any{"resourceVersion": agent.ResourceVersion},
				"spec":     map[string]any{"mode": who.Mode, "cluster": map[string]any{"labels": who.Labels}}})
			if kube.IsNotFound(err) {
				continue // it went just now
			}
		}
		if !kube.IsConflict(err) {
			if err != nil {
				return fmt.Errorf("register Agent %s: %w", who.Agent, err)
			}
			return nil
		}
	}
	return fmt.Errorf("register Agent %s: %w", who.Agent, pki.ErrBusy)
}
