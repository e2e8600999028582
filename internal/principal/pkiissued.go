package principal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// An agent that is connected may have a newer certificate than the one that it
// has connected with, and a thief of its key may have got another. So an Agent
// knows all certificates that were issued to it and are still good: its end is
// the end of them all.

const issuedAnnotation = v1alpha1.IssuedAnnotation

// maxIssued bounds the list. An agent renews its certificate when that is due,
// so that two or three are good at a time.
const maxIssued = 64

// validIssued reads the list: those that are good at that time.
func validIssued(annotations map[string]string, now time.Time) (entries []string) {
	for entry := range strings.FieldsSeq(annotations[issuedAnnotation]) {
		fingerprint, expiry, _ := strings.Cut(entry, "/")
		if len(fingerprint) != 64 || strings.Trim(fingerprint, "0123456789ABCDEF") != "" {
			continue // somebody has written there
		}
		until, err := time.Parse(time.RFC3339, expiry)
		if err != nil || now.Before(until) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// recordIssued implements registrations.
func (a agentObjects) recordIssued(ctx context.Context, name, fingerprint string, until time.Time) error {
	for range 5 {
		agent, err := a.get(ctx, name)
		if err == nil && agent == nil {
			err = errors.New("there is none")
		}
		if err != nil {
			return fmt.Errorf("read Agent %s: %w", name, err)
		}
		entries := validIssued(agent.Annotations, time.Now())
		if len(entries) >= maxIssued {
			return refused("the agent %s has %d certificates that are good, more than it can need: something keeps it from storing them, or its key was stolen. "+
				"Put that right, then remove annotation %s from its Agent on the hub", name, len(entries), issuedAnnotation)
		}
		entry := fingerprint + "/" + until.UTC().Format(time.RFC3339)
		if slices.Contains(entries, entry) {
			return nil
		}
		_, err = a.client.Patch(ctx, a.ref(name), map[string]any{"metadata": map[string]any{
			"resourceVersion": agent.ResourceVersion,
			"annotations":     map[string]string{issuedAnnotation: strings.Join(append(entries, entry), " ")}}})
		if !kube.IsConflict(err) {
			if err != nil {
				return fmt.Errorf("note a certificate in Agent %s: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("note a certificate in Agent %s: %w", name, pki.ErrBusy)
}
