package fleet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// Registrations implements issue.Registrations with Agents. It reads them from the API server.
type Registrations struct{ Registry *Registry }

// get returns an Agent, or nil if there is none.
func (a Registrations) get(ctx context.Context, name string) (*agentRecord, error) {
	o, err := a.Registry.fetch(ctx, name)
	if err != nil || o == nil {
		return nil, err
	}
	rec, err := readAgent(o)
	return &rec, err
}

// DenyReason implements issue.Registrations.
func (a Registrations) DenyReason(ctx context.Context, name, mode string) (string, error) {
	agent, err := a.get(ctx, name)
	if err != nil || agent == nil {
		return "", err
	}
	return certificateDenial(&agent.Agent, mode), nil
}

// certificateDenial returns why an agent must not get a certificate, or not for this mode. It is empty if the agent may.
func certificateDenial(agent *v1alpha1.Agent, mode string) string {
	name := agent.Name
	switch {
	case agent.DeletionTimestamp != nil:
		return fmt.Sprintf("agent %s is being deleted on the hub: wait until it is deleted, then create a new token", name)
	case agent.Annotations[v1alpha1.RetireAnnotation] != "":
		return fmt.Sprintf("agent %s is retired on the hub, its cluster is permanently gone: delete the Agent, then create a new token", name)
	case agent.Spec.Suspended:
		return fmt.Sprintf("agent %s is suspended on the hub: run `argocd-agentctl agent resume %s`", name, name)
	case mode != "" && agent.Spec.Mode != "" && agent.Spec.Mode != mode:
		return fmt.Sprintf("agent %s is %s on the hub, but the token is for mode %s: create a token for mode %s, or delete the Agent first", name, agent.Spec.Mode, mode, agent.Spec.Mode)
	}
	return ""
}

// write calls f, which writes an Agent, and again if the Agent has just changed or was deleted.
func (a Registrations) write(agent, what string, f func() error) error {
	changed := func(err error) bool { return kube.IsConflict(err) || kube.IsNotFound(err) }
	err := retry.OnError(wait.Backoff{Steps: 5}, changed, f)
	if changed(err) {
		return fmt.Errorf("%s Agent %s: %w", what, agent, pki.ErrBusy)
	}
	return err
}

// Register implements issue.Registrations.
func (a Registrations) Register(ctx context.Context, grant pki.JoinGrant, tokenValid func() error) error {
	return a.write(grant.Agent, "register", func() error {
		agent, err := a.get(ctx, grant.Agent)
		if err != nil {
			return err
		}
		if agent == nil {
			if err := tokenValid(); err != nil {
				return err
			}
			spec := v1alpha1.Spec{Mode: grant.Mode, Cluster: v1alpha1.ClusterSecret{Labels: grant.Labels}}
			_, err = a.Registry.cfg.Client.Create(ctx, a.Registry.ref(grant.Agent), map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind,
				"metadata": map[string]any{"name": grant.Agent, "namespace": a.Registry.cfg.Namespace}, "spec": spec})
		} else {
			if reason := certificateDenial(&agent.Agent, grant.Mode); reason != "" {
				return &enroll.Error{Message: reason}
			}
			_, err = a.Registry.cfg.Client.Patch(ctx, a.Registry.ref(grant.Agent), map[string]any{
				"metadata": map[string]any{"resourceVersion": agent.ResourceVersion},
				"spec":     map[string]any{"mode": grant.Mode, "cluster": map[string]any{"labels": grant.Labels}}})
		}
		if err != nil {
			return fmt.Errorf("register Agent %s: %w", grant.Agent, err)
		}
		return nil
	})
}

// issuedAnnotation of an Agent records all valid certificates that were issued to it, because the agent can have newer
// ones than the one of its connection. The deletion of the Agent revokes them all.
const issuedAnnotation = v1alpha1.IssuedAnnotation

// RecordIssued implements issue.Registrations.
func (a Registrations) RecordIssued(ctx context.Context, name, fingerprint string, until time.Time) error {
	return a.write(name, "record a certificate in", func() error {
		agent, err := a.get(ctx, name)
		if err != nil {
			return err
		}
		if agent == nil {
			return fmt.Errorf("read Agent %s: not found", name)
		}
		entries := pki.ParseRecord(agent.Annotations[issuedAnnotation]).Valid(time.Now())
		if len(entries) >= pki.MaxIssued {
			return &enroll.Error{Message: fmt.Sprintf("agent %s has %d valid certificates, more than it needs: it fails to store them, or its key was stolen. "+
				"Fix this, then remove annotation %s from its Agent on the hub", name, len(entries), issuedAnnotation)}
		}
		if entries.Contains(fingerprint) {
			return nil
		}
		entries = append(entries, pki.RecordEntry{Fingerprint: fingerprint, Expires: until})
		_, err = a.Registry.cfg.Client.Patch(ctx, a.Registry.ref(name), map[string]any{"metadata": map[string]any{
			"resourceVersion": agent.ResourceVersion,
			"annotations":     map[string]string{issuedAnnotation: entries.String()}}})
		if err != nil {
			return fmt.Errorf("record a certificate in Agent %s: %w", name, err)
		}
		return nil
	})
}
