package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// ErrUnregistered is returned for an agent without Agent if registration is required.
var ErrUnregistered = errors.New("this agent is not registered on the hub: create its Agent, for example with `argocd-agentctl agent create`")

// ErrNoMode is returned for an agent whose Agent has no mode if registration is required.
var ErrNoMode = errors.New("the Agent of this agent has no mode: set spec.mode on the hub, for example with `argocd-agentctl agent reconfigure --mode`")

// ErrNoStandby is returned for a standby hub that is not registered as one. It never registers itself.
var ErrNoStandby = errors.New("this standby is not registered on the active hub: run `argocd-agentctl hub demote --principal-context STANDBY --other-context ACTIVE`")

// ErrRevoked is returned for an agent whose certificate is revoked.
var ErrRevoked = errors.New("the certificate is revoked")

// ErrDeleted is returned for an agent without Agent whose Agent was deleted, if it would register itself.
var ErrDeleted = errors.New("this agent was deleted on the hub: to accept it again, create its Agent, for example with `argocd-agentctl agent create`")

// NeedsFirstConnection reports whether the connection of an agent decides its registration: its Agent, its mode or its
// cluster is not known yet. The reconciler refuses a Hello that contradicts the Agent.
func (r *Registry) NeedsFirstConnection(agent string, hello engine.Hello) bool {
	reg, known := r.Get(agent)
	return !known || reg.KnownCluster == "" && hello.Mode == string(reg.Agent.Mode)
}

// RecordFirstConnection records the mode and cluster of an agent before its first session. If two clusters connect with
// one name, also to two principal replicas, only one of them is recorded. If require is set, the agent must have an Agent
// with a mode.
func (r *Registry) RecordFirstConnection(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) error {
	switch reg, known := r.Get(agent); kind.Mode(hello.Mode) {
	case kind.Managed, kind.Autonomous:
	case kind.Standby: // it gets every object of the hub
		if !known || reg.Agent.Mode != kind.Standby {
			return ErrNoStandby
		}
	default:
		return fmt.Errorf("mode %.40q is unknown", hello.Mode)
	}
	// Another replica or the status writer can change the Agent.
	if err := retry.OnError(wait.Backoff{Steps: 4}, kube.IsConflict, func() error {
		o, err := r.record(ctx, agent, fingerprint, hello, require)
		if err != nil {
			return err
		}
		return r.update(ctx, o)
	}); err != nil {
		return err
	}
	if _, ok := r.Get(agent); !ok {
		return fmt.Errorf("Agent %s is not active: %s", agent, cmp.Or(r.InvalidReason(agent), "it has changed"))
	}
	return nil
}

// record writes the mode and the cluster if they are not set.
func (r *Registry) record(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) (*kind.Object, error) {
	o, err := r.fetch(ctx, agent)
	if err != nil {
		return nil, err
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
	if rec.Spec.Mode == "" && require {
		return nil, ErrNoMode
	}
	if kind.Mode(hello.Mode) == kind.Standby && rec.Spec.Mode != hello.Mode {
		return nil, ErrNoStandby
	}
	if rec.Spec.Mode == "" && rec.DeletionTimestamp == nil {
		o, err = r.cfg.Client.Patch(ctx, r.ref(agent), map[string]any{
			"metadata": map[string]any{"resourceVersion": rec.ResourceVersion}, "spec": map[string]any{"mode": hello.Mode}})
		if err != nil {
			return nil, fmt.Errorf("record the mode of Agent %s: %w", agent, err)
		}
		r.cfg.Log.InfoContext(ctx, "Recorded agent mode from first connection", "agent", agent, "mode", hello.Mode)
	}
	if rec.Status.ClusterUID == "" {
		// Not with the rest of the status: a clone that connects next must be refused.
		o, err = r.patchStatus(ctx, agent, o.ResourceVersion(), v1alpha1.Status{ClusterUID: hello.ClusterUID}, "clusterUID")
		if err != nil {
			return nil, fmt.Errorf("record the cluster of Agent %s: %w", agent, err)
		}
	}
	return o, nil
}

// createAgent creates the Agent of an agent from its cluster Secret, if there is one without Agent, or from its Hello.
func (r *Registry) createAgent(ctx context.Context, agent, fingerprint string, hello engine.Hello, require bool) (*kind.Object, error) {
	_, _, secret, has := r.object(agent)
	known := has && !secret.derived()
	if require && !known {
		return nil, ErrUnregistered
	}
	// A deleted agent can reconnect before the watch shows that it is revoked. It must not be registered again. A mesh,
	// SPIFFE or another CA may continue to authenticate it.
	revoked, deleted, err := r.cfg.Revoked(ctx, agent, fingerprint)
	switch {
	case err != nil:
		return nil, err
	case revoked:
		return nil, ErrRevoked
	case known:
		return r.adoptClusterSecret(ctx, secret)
	case deleted:
		return nil, ErrDeleted
	}
	a := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: hello.Mode}}
	a.Name, a.Namespace = agent, r.cfg.Namespace
	a.Labels = map[string]string{v1alpha1.SelfRegisteredLabel: "true"}
	o, err := r.create(ctx, a)
	if err == nil {
		r.cfg.Log.InfoContext(ctx, "Registered agent from first connection", "agent", agent, "mode", hello.Mode, "cluster", hello.ClusterUID)
	}
	return o, err
}

func (r *Registry) adoptClusterSecret(ctx context.Context, secret clusterSecret) (*kind.Object, error) {
	a, err := secret.toAgent(r.cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("create an Agent from Secret %s: %w", secret.name, err)
	}
	o, err := r.create(ctx, a)
	if err != nil {
		return nil, err
	}
	r.cfg.Log.InfoContext(ctx, "Created Agent from cluster Secret", "agent", a.Name, "secret", secret.name, "mode", a.Spec.Mode)
	return r.mergeFromSecret(ctx, o, secret)
}

// mergeFromSecret copies status fields from a cluster Secret if the Agent does not have them.
func (r *Registry) mergeFromSecret(ctx context.Context, o *kind.Object, secret clusterSecret) (*kind.Object, error) {
	old, err := secret.toAgent(r.cfg.Namespace)
	if err != nil {
		return o, nil //nolint:nilerr // an invalid Secret has nothing to merge
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
	o, err = r.patchStatus(ctx, rec.Name, rec.ResourceVersion, old.Status, known...)
	if err != nil {
		return nil, fmt.Errorf("copy the status from Secret %s to Agent %s: %w", secret.name, rec.Name, err)
	}
	return o, nil
}

// create creates an Agent, or returns the existing one.
func (r *Registry) create(ctx context.Context, a v1alpha1.Agent) (*kind.Object, error) {
	metadata := map[string]any{"name": a.Name, "namespace": a.Namespace, "finalizers": []string{v1alpha1.Finalizer}}
	if len(a.Labels) > 0 {
		metadata["labels"] = a.Labels
	}
	o, err := r.cfg.Client.Create(ctx, r.ref(a.Name), map[string]any{
		"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind, "metadata": metadata, "spec": a.Spec})
	if kube.IsConflict(err) {
		if o, err = r.cfg.Client.Get(ctx, r.ref(a.Name)); err == nil && o == nil {
			err = errors.New("it was created and deleted by others")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create Agent %s: %w", a.Name, err)
	}
	return o, nil
}

// removeConfirmation removes a confirmation that has taken effect.
func (r *Registry) removeConfirmation(ctx context.Context, agent, id string) error {
	rec, known, _, _ := r.object(agent)
	if !known || rec.Annotations[v1alpha1.ConfirmAnnotation] != id {
		return nil
	}
	path := "/metadata/annotations/" + jsonPointerEscaper.Replace(v1alpha1.ConfirmAnnotation)
	_, err := r.cfg.Client.JSONPatch(ctx, r.ref(agent), kube.PatchOperation{Op: "test", Path: path, Value: id}, kube.PatchOperation{Op: "remove", Path: path})
	if err != nil && !kube.IsNotFound(err) && !kube.IsRejected(err) { // rejected if a user has changed the confirmation
		return fmt.Errorf("remove the confirmation from Agent %s: %w", agent, err)
	}
	return nil
}

var jsonPointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func (r *Registry) ref(agent string) kind.Ref {
	return kind.Ref{Resource: AgentResource, Namespace: r.cfg.Namespace, Name: agent}
}

// patchStatus writes a status, or only the named fields of it, if the Agent has this version.
func (r *Registry) patchStatus(ctx context.Context, agent, version string, s v1alpha1.Status, only ...string) (*kind.Object, error) {
	return r.cfg.Client.PatchStatus(ctx, r.ref(agent), map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": statusPatch(s, only...)})
}

// fetch reads an Agent from the API server. It returns nil if there is none.
func (r *Registry) fetch(ctx context.Context, agent string) (*kind.Object, error) {
	o, err := r.cfg.Client.Get(ctx, r.ref(agent))
	if err != nil {
		return nil, fmt.Errorf("read Agent %s: %w", agent, err)
	}
	return o, nil
}

// refresh reads an Agent again after a conflict. The listeners are called if its version was not known.
func (r *Registry) refresh(ctx context.Context, agent string) error {
	o, err := r.fetch(ctx, agent)
	if err != nil || o == nil {
		return err
	}
	return r.update(ctx, o)
}
