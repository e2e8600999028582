package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// Registrations implements issue.Registrations with Agents. It reads them from the API server.
type Registrations struct {
	Registry *Registry
	// Promoted is the generation of this hub if it was promoted, otherwise 0. Agents may then have certificates that the hub
	// before it issued and that this hub has not received.
	Promoted uint64
	// Revoke revokes certificates of an agent: fingerprint → expiry. A zero time means unknown.
	Revoke func(ctx context.Context, agent string, revoked map[string]time.Time, now time.Time) error
}

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

// certificateDenial returns why an agent must not get a certificate, or not for this mode. The result is empty if the agent
// may. The mode is empty if the agent renews its certificate.
func certificateDenial(agent *v1alpha1.Agent, mode string) string {
	name := agent.Name
	switch {
	case mode != "" && (kind.Mode(mode) == kind.Standby || kind.Mode(agent.Spec.Mode) == kind.Standby):
		return fmt.Sprintf("agent %s is a standby hub, which issues its own certificate: a token is not accepted for it", name)
	case agent.DeletionTimestamp != nil:
		return fmt.Sprintf("agent %s is being deleted on the hub: wait until it is deleted, then create a new token", name)
	case agent.Annotations[v1alpha1.RetireAnnotation] != "":
		return fmt.Sprintf("agent %s is retired on the hub, its cluster is permanently gone: delete the Agent, then create a new token", name)
	case agent.Spec.Suspended:
		return fmt.Sprintf("agent %s is suspended on the hub: run `argocd-agentctl agent resume %s`", name, name)
	case mode == "" && agent.Annotations[v1alpha1.ReusedAnnotation] != "":
		return reusedDenial(name)
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
			if reason := certificateDenial(&v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: grant.Agent}}, grant.Mode); reason != "" {
				return &enroll.Error{Message: reason}
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

// RecordJoined implements issue.Registrations.
func (a Registrations) RecordJoined(ctx context.Context, name string, entry pki.RecordEntry) error {
	return a.record(ctx, name, func(agent *agentRecord, record pki.Record) (map[string]any, error) {
		annotations := map[string]any{}
		if agent.Annotations[v1alpha1.ReusedAnnotation] != "" {
			if err := a.Revoke(ctx, name, agentCertificates(agent, record), time.Now()); err != nil {
				return nil, err
			}
			annotations[v1alpha1.ReusedAnnotation] = nil
			record = record.Newest(1) // keeps the generation
		}
		entry.Hub = a.Promoted
		annotations[issuedAnnotation] = record.Joined(entry).String()
		return annotations, nil
	})
}

// RecordRenewed implements issue.Registrations. The decision and the record are one write, so that several principal
// replicas decide the same.
func (a Registrations) RecordRenewed(ctx context.Context, name string, with, entry pki.RecordEntry) error {
	var reused *pki.ReusedError
	var uid types.UID
	var missed bool
	entry.Hub = a.Promoted
	err := a.record(ctx, name, func(agent *agentRecord, record pki.Record) (map[string]any, error) {
		reused, missed = nil, false                                // after a conflict, the Agent is read again
		if why := certificateDenial(&agent.Agent, ""); why != "" { // by another replica
			return nil, &enroll.Error{Message: why}
		}
		next, err := record.Renewed(with, entry)
		if errors.As(err, &reused) {
			uid = agent.UID
			annotations := map[string]any{v1alpha1.ReusedAnnotation: time.Now().UTC().Format(time.RFC3339) + ": " + reused.Error()}
			if reused.Missed { // so that the next join, and the deletion of the Agent, revoke it
				annotations[issuedAnnotation] = append(pki.Record{with}, record...).String()
			}
			return annotations, nil
		}
		if errors.Is(err, pki.ErrNotRecorded) {
			return nil, &enroll.Error{Message: fmt.Sprintf("%v: join again with a token of `argocd-agentctl agent join-token %s`", err, name)}
		}
		missed = next.Contains(with.Fingerprint) && !record.Contains(with.Fingerprint)
		return map[string]any{issuedAnnotation: next.String()}, err
	})
	if err == nil && missed {
		a.Registry.cfg.Log.WarnContext(ctx, "Recorded certificate of the previous hub", "agent", name, "fingerprint", with.Fingerprint, "issued", with.Issued.UTC())
	}
	if err != nil || reused == nil {
		return err
	}
	a.Registry.cfg.Log.ErrorContext(ctx, "Suspended agent, two clients have its key", "agent", name, "certificate", with.Fingerprint, "reason", reused.Error())
	a.Registry.reportEvent(ctx, name, uid, reasonReused, reused.Error()+". The agent is suspended until it joins again.")
	return &enroll.Error{Message: reusedDenial(name)}
}

// reusedDenial is why an agent is refused whose certificate was reused.
func reusedDenial(name string) string {
	return fmt.Sprintf("agent %s is suspended on the hub, because two clients have its key: create a token with `argocd-agentctl agent join-token %s`, "+
		"then run `argocd-agentctl join --replace` on its cluster", name, name)
}

// agentCertificates returns the certificates of an agent by fingerprint with their expiry. A zero time means unknown.
func agentCertificates(agent *agentRecord, record pki.Record) map[string]time.Time {
	all := map[string]time.Time{}
	if c := agent.Status.Certificate; c != nil && c.Fingerprint != "" {
		all[c.Fingerprint] = time.Time{}
		if c.Expires != nil {
			all[c.Fingerprint] = c.Expires.Time
		}
	}
	for _, entry := range record {
		all[entry.Fingerprint] = entry.Expires
	}
	return all
}

// record changes annotations of an Agent, depending on the certificates that it records.
func (a Registrations) record(ctx context.Context, name string, change func(*agentRecord, pki.Record) (annotations map[string]any, err error)) error {
	return a.write(name, "record a certificate in", func() error {
		agent, err := a.get(ctx, name)
		if err != nil {
			return err
		}
		if agent == nil {
			return fmt.Errorf("read Agent %s: not found", name)
		}
		record := pki.ParseRecord(agent.Annotations[issuedAnnotation]).Valid(time.Now())
		if len(record) >= pki.MaxIssued {
			return &enroll.Error{Message: fmt.Sprintf("agent %s has %d valid certificates, more than it needs: it fails to store them, or its key was stolen. "+
				"Fix this, then remove annotation %s from its Agent on the hub", name, len(record), issuedAnnotation)}
		}
		annotations, err := change(agent, record)
		if err != nil {
			return err
		}
		_, err = a.Registry.cfg.Client.Patch(ctx, a.Registry.ref(name), map[string]any{"metadata": map[string]any{
			"resourceVersion": agent.ResourceVersion, "annotations": annotations}})
		if err != nil {
			return fmt.Errorf("record a certificate in Agent %s: %w", name, err)
		}
		return nil
	})
}
