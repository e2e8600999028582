package principal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// This file is about how agents get their Agent objects when nobody has declared
// them.

// errUnregistered refuses an agent that somebody has to register first.
var errUnregistered = errors.New("this agent is not registered on the hub, and the hub requires it; create its Agent there first, such as with argocd-agentctl agent create")

// errRevoked refuses an agent whose certificate was revoked just now.
var errRevoked = errors.New("the certificate is revoked")

// needsFirstConnection reports whether something about an agent is still open, and is what it
// says when it first connects: everything, its mode, or which cluster is its own.
// What contradicts its Agent is for the node to refuse.
func (r *registry) needsFirstConnection(agent string, hello engine.Hello) bool {
	reg, known := r.get(agent)
	return !known || reg.KnownCluster == "" && hello.Mode == string(reg.Agent.Mode) && hello.Mapping == string(reg.Agent.Mapping)
}

// recordFirstConnection records the first claim of an agent of which something is open, before it is
// let in: of two that come at the same time, to whichever principals, the record has
// one. With require, somebody must have declared it.
func (r *registry) recordFirstConnection(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) error {
	if mode := kind.Mode(hello.Mode); mode != kind.Managed && mode != kind.Autonomous {
		return fmt.Errorf("mode %.40q is unknown", hello.Mode)
	}
	var o *kind.Object
	for tries := 3; ; tries-- { // others write it too: another replica, or the one who reports on it
		var err error
		if o, err = r.record(ctx, agent, fingerprint, hello, require); err == nil {
			break
		}
		if tries == 0 || !kube.IsConflict(err) {
			return err
		}
	}
	if err := r.update(o); err != nil {
		return err
	}
	if _, ok := r.get(agent); !ok {
		return fmt.Errorf("the Agent %s on the hub: %s", agent, cmp.Or(r.invalidReason(agent), "it is not in force"))
	}
	return nil
}

// record writes a claim down, as far as it is not decided yet.
func (r *registry) record(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) (*kind.Object, error) {
	o, err := r.client.Get(ctx, r.ref(agent))
	if err != nil {
		return nil, fmt.Errorf("read Agent %s: %w", agent, err)
	}
	if o == nil {
		if o, err = r.createAgent(ctx, agent, fingerprint, hello, require); err != nil {
			return nil, err
		}
	}
	rec, err := readAgent(o)
	if err != nil {
		return nil, err
	}
	if rec.Spec.Mode == "" && rec.DeletionTimestamp == nil {
		o, err = r.client.Patch(ctx, r.ref(agent), map[string]any{
			"metadata": map[string]any{"resourceVersion": rec.ResourceVersion}, "spec": map[string]any{"mode": hello.Mode}})
		if err != nil {
			return nil, fmt.Errorf("record the mode of Agent %s: %w", agent, err)
		}
		r.log.InfoContext(ctx, "an agent's mode is what it first said", "agent", agent, "mode", hello.Mode)
	}
	if rec.Status.ClusterUID == "" {
		// Now, and not with the rest of the status: a clone that comes right after
		// it has to be found out.
		o, err = r.client.PatchStatus(ctx, r.ref(agent), map[string]any{
			"metadata": map[string]any{"resourceVersion": o.ResourceVersion()}, "status": statusPatch(v1alpha1.Status{ClusterUID: hello.ClusterUID}, "clusterUID")})
		if err != nil {
			return nil, fmt.Errorf("record the cluster of Agent %s: %w", agent, err)
		}
	}
	return o, nil
}

// createAgent makes the Agent of an agent that has none: out of its Secret, if there is
// one from before, or out of what it says.
func (r *registry) createAgent(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) (*kind.Object, error) {
	_, _, secret, has := r.object(agent)
	known := has && !secret.derived()
	if require && !known {
		return nil, errUnregistered // who comes again and again costs no more than that
	}
	// One that was deleted may be back before we have seen that it is revoked, and
	// would bring its Agent back.
	if revoked, err := r.revoked(ctx, fingerprint); err != nil || revoked {
		return nil, cmp.Or(err, errRevoked)
	}
	if known {
		return r.adoptClusterSecret(ctx, secret)
	}
	a := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: hello.Mode}}
	a.Name, a.Namespace = agent, r.namespace
	a.Labels = map[string]string{v1alpha1.SelfRegisteredLabel: "true"}
	o, err := r.create(ctx, a)
	if err == nil {
		r.log.InfoContext(ctx, "registered an agent by its first claim", "agent", agent, "mode", hello.Mode, "cluster", hello.ClusterUID)
	}
	return o, err
}

// adoptClusterSecret makes an Agent out of a cluster Secret that is from before there were
// Agents, or from another program.
func (r *registry) adoptClusterSecret(ctx context.Context, secret clusterSecret) (*kind.Object, error) {
	a, err := secret.toAgent(r.namespace)
	if err != nil {
		return nil, fmt.Errorf("make an Agent out of Secret %s: %w", secret.name, err)
	}
	o, err := r.create(ctx, a)
	if err != nil {
		return nil, err
	}
	r.log.InfoContext(ctx, "took an agent over from its cluster Secret", "agent", a.Name, "secret", secret.name, "mode", a.Spec.Mode)
	return r.mergeFromSecret(ctx, o, secret)
}

// mergeFromSecret completes an Agent by what only a Secret from before knows. What the
// Agent itself knows is newer.
func (r *registry) mergeFromSecret(ctx context.Context, o *kind.Object, secret clusterSecret) (*kind.Object, error) {
	old, err := secret.toAgent(r.namespace)
	if err != nil {
		return o, nil //nolint:nilerr // it makes no sense, and so there is nothing to carry over
	}
	rec, err := readAgent(o)
	if err != nil {
		return nil, err
	}
	var known []string
	if rec.Status.ClusterUID == "" && old.Status.ClusterUID != "" {
		known = append(known, "clusterUID")
	}
	if rec.Status.Store == nil && old.Status.Store != nil && (rec.Status.ClusterUID == "" || rec.Status.ClusterUID == old.Status.ClusterUID) {
		known = append(known, "store")
	}
	if len(known) == 0 {
		return o, nil
	}
	o, err = r.client.PatchStatus(ctx, r.ref(rec.Name), map[string]any{
		"metadata": map[string]any{"resourceVersion": rec.ResourceVersion}, "status": statusPatch(old.Status, known...)})
	if err != nil {
		return nil, fmt.Errorf("record what Secret %s knows of agent %s: %w", secret.name, rec.Name, err)
	}
	return o, nil
}

// create makes an Agent, or returns the one that is there by now.
func (r *registry) create(ctx context.Context, a v1alpha1.Agent) (*kind.Object, error) {
	metadata := map[string]any{"name": a.Name, "namespace": a.Namespace, "finalizers": []string{v1alpha1.Finalizer}}
	if len(a.Labels) > 0 {
		metadata["labels"] = a.Labels
	}
	o, err := r.client.Create(ctx, r.ref(a.Name), map[string]any{
		"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind, "metadata": metadata, "spec": a.Spec})
	if kube.IsConflict(err) {
		if o, err = r.client.Get(ctx, r.ref(a.Name)); err == nil && o == nil {
			err = errors.New("it was there, and is gone again")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create Agent %s: %w", a.Name, err)
	}
	return o, nil
}

// removeConfirmation takes off a confirmation that has taken effect.
func (r *registry) removeConfirmation(ctx context.Context, agent, id string) error {
	rec, known, _, _ := r.object(agent)
	if !known || rec.Annotations[v1alpha1.ConfirmAnnotation] != id {
		return nil
	}
	path := "/metadata/annotations/" + jsonPointerEscaper.Replace(v1alpha1.ConfirmAnnotation)
	_, err := r.client.JSONPatch(ctx, r.ref(agent), kube.PatchOperation{Op: "test", Path: path, Value: id}, kube.PatchOperation{Op: "remove", Path: path})
	if err != nil && !kube.IsNotFound(err) && !kube.IsRejected(err) { // refused: somebody has said something else meanwhile
		return fmt.Errorf("take the confirmation off Agent %s: %w", agent, err)
	}
	return nil
}

// jsonPointerEscaper escapes a name for a JSON pointer.
var jsonPointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func (r *registry) ref(agent string) kind.Ref {
	return kind.Ref{Resource: agentResource, Namespace: r.namespace, Name: agent}
}
