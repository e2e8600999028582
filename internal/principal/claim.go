package principal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// This file is about what the principal writes into cluster Secrets.

// errUnregistered refuses an agent that somebody has to register first.
var errUnregistered = errors.New("this agent is not registered on the hub, and the hub requires it; create its cluster Secret first")

// claim records the first claim of an agent that is not registered yet. With
// require, somebody must have made its Secret.
func (r *registry) claim(ctx context.Context, agent string, hello engine.Hello, require bool) error {
	mode := kind.Mode(hello.Mode)
	if mode != kind.Managed && mode != kind.Autonomous {
		return fmt.Errorf("mode %.40q is unknown", hello.Mode)
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: r.namespace, Name: "cluster-" + agent}
	annotations := map[string]string{
		"managed-by": "argocd-agent", "argocd.argoproj.io/skip-reconcile": "true",
		modeAnnotation: string(mode), clusterAnnotation: hello.ClusterUID,
	}
	labels := map[string]string{agentLabel: agent, "argocd.argoproj.io/secret-type": "cluster"}
	existing, err := r.client.Get(ctx, ref)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	var o *kind.Object
	if existing != nil {
		if existing.Label(agentLabel) != agent {
			return fmt.Errorf("secret %s exists and is not labelled %s=%s", ref.Name, agentLabel, agent)
		}
		if existing.Annotation(modeAnnotation) != "" {
			return r.enforce(agent, existing) // claimed meanwhile; what is registered decides
		}
		o, err = r.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{
			"resourceVersion": existing.ResourceVersion(), "annotations": annotations, "labels": labels}})
	} else {
		if require {
			return errUnregistered
		}
		labels[selfRegisteredLabel] = "true"
		o, err = r.client.Create(ctx, ref, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"name": ref.Name, "namespace": ref.Namespace, "labels": labels, "annotations": annotations},
			"stringData": map[string]string{"name": agent, "server": "https://" + r.proxy + "?agentName=" + agent, "config": "{}"},
		})
	}
	if err != nil {
		return fmt.Errorf("record the first claim in Secret %s: %w", ref.Name, err)
	}
	r.log.InfoContext(ctx, "registered an agent by its first claim", "agent", agent, "mode", mode, "cluster", hello.ClusterUID)
	return r.enforce(agent, o)
}

// enforce takes a Secret on behalf of an agent that waits for it.
func (r *registry) enforce(agent string, o *kind.Object) error {
	if err := r.seen(o); err != nil {
		return fmt.Errorf("secret %s: %w", o.Name(), err)
	}
	if _, ok := r.get(agent); !ok {
		return fmt.Errorf("secret %s: %s", o.Name(), cmp.Or(r.refusal(agent), "it is not in force"))
	}
	return nil
}

// remember records how far an agent's store has been seen, so that a restart of
// the hub does not believe one that went back.
func (r *registry) remember(ctx context.Context, agent string, store engine.Store) error {
	reg, ok := r.get(agent)
	if !ok || store.UID == "" || reg.KnownStore == store {
		return nil
	}
	return r.annotate(ctx, reg, "", storeAnnotation, formatStore(store))
}

// recordCluster records which cluster an agent is in, where that is open: so
// that after a restart a clone is still told from it.
func (r *registry) recordCluster(ctx context.Context, agent, uid string) error {
	reg, ok := r.get(agent)
	if !ok || reg.KnownCluster != "" {
		return nil
	}
	return r.annotate(ctx, reg, strconv.FormatUint(reg.revision, 10), clusterAnnotation, uid)
}

// confirmed takes off a confirmation that has taken effect.
func (r *registry) confirmed(ctx context.Context, agent, id string) error {
	reg, ok := r.get(agent)
	if !ok || reg.confirm != id {
		return nil
	}
	return r.annotate(ctx, reg, strconv.FormatUint(reg.revision, 10), confirmAnnotation, nil)
}

// annotate changes one annotation of a registration, if given only at a
// revision; nil takes it off.
func (r *registry) annotate(ctx context.Context, reg registration, revision, name string, value any) error {
	metadata := map[string]any{"annotations": map[string]any{name: value}}
	if revision != "" {
		metadata["resourceVersion"] = revision
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: r.namespace, Name: reg.secret}
	if _, err := r.client.Patch(ctx, ref, map[string]any{"metadata": metadata}); err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("annotate Secret %s with %s: %w", reg.secret, name, err)
	}
	return nil
}

func formatStore(s engine.Store) string { return s.UID + "/" + strconv.FormatUint(s.Revision, 10) }

func parseStore(s string) engine.Store {
	uid, rev, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(rev, 10, 64)
	if !ok || err != nil || uid == "" {
		return engine.Store{}
	}
	return engine.Store{UID: uid, Revision: n}
}
