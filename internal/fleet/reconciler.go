package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/tasks"
)

// ClusterConfig provides the config of cluster Secrets, with which Argo CD authenticates to the resource proxy.
type ClusterConfig interface {
	// ClusterConfig returns the config of an agent's cluster Secret. It returns current if that is still valid, and nil
	// if it has no credentials.
	ClusterConfig(agent string, current []byte) ([]byte, error)
	// Changed returns a channel that is closed when results may have changed.
	Changed() <-chan struct{}
}

// ReconcilerConfig is what a Reconciler needs.
type ReconcilerConfig struct {
	Client        *kube.Client
	Namespace     string
	JoinTokens    pki.Secrets // of agents
	Registry      *Registry
	Blocklist     *revoke.Blocklist
	ClusterConfig ClusterConfig                           // if nil, the config in Secrets is not changed
	Certificates  func(agent string) map[string]time.Time // of the agent's connections: fingerprint → expiry
	Status        *StatusWriter
	Deleted       func(v1alpha1.Agent) // is called after this replica completed the deletion of an Agent
	Log           *slog.Logger
}

// Reconciler derives the cluster Secrets from Agents, and completes the deletion of Agents. Every principal replica does
// so, with the same result.
type Reconciler struct {
	cfg      ReconcilerConfig
	registry *Registry
	log      *slog.Logger
	queue    *tasks.Queue

	mu            sync.Mutex
	checkedConfig map[string]string // agent → hash of the config that ClusterConfig accepted
}

const parallelReconciles = 8

// NewReconciler returns a Reconciler that is started by Run.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	k := &Reconciler{cfg: cfg, registry: cfg.Registry, log: cfg.Log, checkedConfig: map[string]string{}}
	k.queue = tasks.NewQueue(tasks.Config{Name: "reconcile Agent", Do: k.reconcile, Parallel: parallelReconciles, Log: cfg.Log})
	cfg.Registry.OnChange(k.queue.Add)
	return k
}

// Run reconciles Agents until ctx ends.
func (k *Reconciler) Run(ctx context.Context) error {
	return k.registry.runWhenReady(ctx, k.recheckPeriodically, k.queue.Run)
}

func (k *Reconciler) reconcile(ctx context.Context, agent string) error {
	rec, known, secret, has := k.registry.object(agent)
	switch {
	case !known && has && !secret.derived():
		o, err := k.registry.adoptClusterSecret(ctx, secret)
		if err != nil {
			return err
		}
		return k.registry.update(ctx, o)
	case !known:
		k.setSecretError(agent, nil)
		k.mu.Lock()
		delete(k.checkedConfig, agent)
		k.mu.Unlock()
		return nil
	case rec.DeletionTimestamp != nil:
		err := k.finalize(ctx, rec)
		if errors.Is(err, revoke.ErrFull) { // a user must act
			k.setSecretError(agent, err)
		}
		return err
	case !hasFinalizer(rec):
		return k.ensureFinalizer(ctx, rec)
	}
	if uid, ok := rec.confirmedCluster(); ok {
		return k.acceptCluster(ctx, rec, uid)
	}
	if has && !secret.derived() {
		o, err := k.registry.fetch(ctx, agent)
		if err != nil || o == nil {
			return err
		}
		if o, err = k.registry.mergeFromSecret(ctx, o, secret); err != nil {
			return err
		}
		if err := k.registry.update(ctx, o); err != nil {
			return err
		}
	}
	if kind.Mode(rec.Spec.Mode) == kind.Standby {
		return nil // a hub is no destination of Applications
	}
	err := k.applyClusterSecret(ctx, rec, secret, has)
	k.setSecretError(agent, err)
	return err
}

func (k *Reconciler) setSecretError(agent string, err error) {
	text := ""
	if err != nil && !kube.IsConflict(err) {
		text = err.Error()
	}
	k.cfg.Status.setSecretError(agent, text)
}

func (k *Reconciler) ensureFinalizer(ctx context.Context, rec agentRecord) error {
	o, err := k.cfg.Client.Patch(ctx, k.registry.ref(rec.Name), map[string]any{"metadata": map[string]any{
		"resourceVersion": rec.ResourceVersion, "finalizers": append(rec.Finalizers, v1alpha1.Finalizer)}})
	switch {
	case kube.IsConflict(err): // the status is often written at the same time; the newer version is queued
		return k.registry.refresh(ctx, rec.Name)
	case kube.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("add the finalizer to Agent %s: %w", rec.Name, err)
	}
	return k.registry.update(ctx, o)
}

// acceptCluster records the cluster that a user confirmed. It is active before that, because of the annotation, which is
// removed afterwards.
func (k *Reconciler) acceptCluster(ctx context.Context, rec agentRecord, uid string) error {
	if rec.Status.ClusterUID != uid {
		o, err := k.registry.patchStatus(ctx, rec.Name, rec.ResourceVersion, v1alpha1.Status{ClusterUID: uid}, "clusterUID", "store")
		if err != nil {
			return fmt.Errorf("record the cluster of Agent %s: %w", rec.Name, err)
		}
		k.log.InfoContext(ctx, "Recorded confirmed cluster of agent", "agent", rec.Name, "cluster", uid, "before", rec.Status.ClusterUID)
		return k.registry.update(ctx, o) // which queues the Agent again
	}
	return k.registry.removeConfirmation(ctx, rec.Name, v1alpha1.ConfirmCluster+uid)
}

// applyClusterSecret creates or updates the cluster Secret of an agent. It writes only if something differs.
func (k *Reconciler) applyClusterSecret(ctx context.Context, rec agentRecord, seen clusterSecret, has bool) error {
	if has && k.desiredSecret(rec, seen).matches(seen) && k.configChecked(seen) {
		return nil
	}
	ref := k.secretRef(cmp.Or(seen.name, defaultSecretName(rec.Name)))
	current, err := k.fetchSecret(ctx, ref.Name)
	if err != nil {
		return err
	}
	var secret clusterSecret
	config := []byte("{}")
	if current == nil {
		// Another replica may have completed the deletion of the Agent since it was seen.
		if same, err := k.fetchSame(ctx, rec); err != nil || same == nil || same.IsDeleting() {
			return err
		}
	} else {
		if secret = readSecret(current); !secret.claimableBy(rec.Name) {
			return fmt.Errorf("Secret %s exists without label %s=%s: add the label if it belongs to this agent, or delete the Secret", ref.Name, AgentLabel, rec.Name)
		}
		config = firstNonEmpty(secretValue(current, "config"), config)
	}
	desired := k.desiredSecret(rec, secret)
	if k.cfg.ClusterConfig != nil && (current == nil || secret.createdByPrincipal()) {
		valid, err := k.cfg.ClusterConfig.ClusterConfig(rec.Name, config)
		if err != nil {
			return fmt.Errorf("create the credentials for Secret %s: %w", ref.Name, err)
		}
		config = firstNonEmpty(valid, config)
	}
	if desired.matches(secret) && hashOf(config) == secret.config {
		k.markChecked(secret)
		return k.registry.updateSecret(ctx, current)
	}
	manifest, err := desired.manifest(k.cfg.Namespace, ref.Name, current, config)
	if err != nil {
		return err
	}
	o, err := k.cfg.Client.Apply(ctx, ref, fieldManager, manifest)
	if err != nil {
		return fmt.Errorf("apply Secret %s: %w", ref.Name, err)
	}
	k.log.InfoContext(ctx, "Updated cluster Secret", "agent", rec.Name, "secret", ref.Name, "created", current == nil)
	if !desired.matches(readSecret(o)) {
		return fmt.Errorf("apply Secret %s: another controller reverts the change", ref.Name)
	}
	k.markChecked(readSecret(o))
	return k.registry.updateSecret(ctx, o)
}

func (k *Reconciler) secretRef(name string) kind.Ref {
	return kind.Ref{Resource: kind.Secrets, Namespace: k.cfg.Namespace, Name: name}
}

// fetchSecret reads a Secret from the API server. It returns nil if there is none.
func (k *Reconciler) fetchSecret(ctx context.Context, name string) (*kind.Object, error) {
	o, err := k.cfg.Client.Get(ctx, k.secretRef(name))
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return o, nil
}

// fetchSame reads an Agent from the API server. It returns nil if the Agent no longer exists, also if another one has its
// name. Until then no other Agent can have the name, so objects that were read under the name before belong to it.
func (k *Reconciler) fetchSame(ctx context.Context, rec agentRecord) (*kind.Object, error) {
	o, err := k.registry.fetch(ctx, rec.Name)
	if err != nil || o == nil || o.UID() != string(rec.UID) {
		return nil, err
	}
	return o, nil
}

// configChecked reports whether ClusterConfig accepted the config of a Secret. The config of Secrets that the principal did
// not create belongs to users.
func (k *Reconciler) configChecked(s clusterSecret) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cfg.ClusterConfig == nil || !s.createdByPrincipal() || k.checkedConfig[s.agent] == s.config
}

func (k *Reconciler) markChecked(s clusterSecret) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checkedConfig[s.agent] = s.config
}

const recheckInterval = time.Hour

// recheckPeriodically checks the config of all Secrets when credentials have changed or may expire, and removes expired
// blocklist entries.
func (k *Reconciler) recheckPeriodically(ctx context.Context) error {
	var changed <-chan struct{}
	for {
		if k.cfg.ClusterConfig != nil {
			changed = k.cfg.ClusterConfig.Changed()
			k.mu.Lock()
			clear(k.checkedConfig)
			k.mu.Unlock()
			for _, agent := range k.registry.objectNames() {
				k.queue.Add(agent)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-time.After(recheckInterval):
		}
		if err := k.cfg.Blocklist.Prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "Failed to remove expired blocklist entries, retrying", "error", err)
		}
	}
}

// desiredSecret returns the desired Secret of an Agent. If the principal did not create the current one, its server stays.
func (k *Reconciler) desiredSecret(rec agentRecord, current clusterSecret) desiredSecret {
	server, created := k.registry.serverOf(rec.Name), current.name == "" || current.createdByPrincipal()
	if !created {
		server = cmp.Or(current.server, server)
	}
	return newDesiredSecret(rec, current.labels, server, created)
}

func secretValue(o *kind.Object, key string) []byte {
	data, err := kube.SecretData(o)
	if err != nil {
		return nil
	}
	return data[key]
}

func firstNonEmpty(first, second []byte) []byte {
	if len(first) > 0 {
		return first
	}
	return second
}
