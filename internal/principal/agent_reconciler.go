package principal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// agentReconciler keeps right what is derived from Agents, and ends it with them. Every
// replica does, and all come to the same.
type agentReconciler struct {
	registry      *registry
	client        *kube.Client
	namespace     string
	blocklists    *revoke.Blocklist
	clusterConfig ClusterConfig                           // if nil, the config in Secrets is not changed
	certificates  func(agent string) map[string]time.Time // that an agent is connected with, and when they expire
	statusChanged func(agent string)                      // what shows in its status has
	requeue       func(agent string)                      // has it tended
	deleted       func(rec agentRecord)                   // its Agent was let go, by us
	log           *slog.Logger

	mu            sync.Mutex
	secretErrors  map[string]string // agent → why its Secret is not as it should be, or it cannot go
	checkedConfig map[string]string // agent → hash of the config that was found good
}

// reconcile looks at one agent, and does what there is to do.
func (k *agentReconciler) reconcile(ctx context.Context, agent string) error {
	rec, known, secret, has := k.registry.object(agent)
	switch {
	case !known && has && !secret.derived():
		o, err := k.registry.adoptClusterSecret(ctx, secret)
		if err != nil {
			return err
		}
		return k.registry.update(o)
	case !known:
		k.setSecretError(agent, nil)
		k.mu.Lock()
		delete(k.checkedConfig, agent)
		k.mu.Unlock()
		return nil
	case rec.DeletionTimestamp != nil:
		err := k.finalize(ctx, rec)
		if errors.Is(err, revoke.ErrFull) { // every replica finds that, and people have to do something
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
		if err := k.mergeFromSecret(ctx, rec, secret); err != nil {
			return err
		}
	}
	err := k.applyClusterSecret(ctx, rec, secret, has)
	k.setSecretError(agent, err)
	return err
}

// ensureFinalizer makes sure that an Agent does not go before its end was seen to. While an
// agent connects for the first time its status is written as well: who comes
// second looks again.
func (k *agentReconciler) ensureFinalizer(ctx context.Context, rec agentRecord) error {
	var err error
	for range 3 {
		o, failed := k.client.Patch(ctx, k.registry.ref(rec.Name), map[string]any{"metadata": map[string]any{
			"resourceVersion": rec.ResourceVersion, "finalizers": append(rec.Finalizers, v1alpha1.Finalizer)}})
		if failed == nil {
			return k.registry.update(o)
		}
		if err = failed; !kube.IsConflict(err) {
			break
		}
		if o, err = k.client.Get(ctx, k.registry.ref(rec.Name)); err != nil || o == nil {
			break
		}
		if err = k.registry.update(o); err != nil {
			break
		}
		again, known, _, _ := k.registry.object(rec.Name)
		if !known || again.UID != rec.UID || again.DeletionTimestamp != nil || hasFinalizer(again) {
			return nil // and so it is looked at again
		}
		rec = again
	}
	if err == nil || kube.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("put a finalizer on Agent %s: %w", rec.Name, err)
}

// acceptCluster records that another cluster has an agent's name, as a person
// has said. It is in force already; now it no longer depends on their word.
func (k *agentReconciler) acceptCluster(ctx context.Context, rec agentRecord, uid string) error {
	if rec.Status.ClusterUID != uid {
		o, err := k.client.PatchStatus(ctx, k.registry.ref(rec.Name), map[string]any{
			"metadata": map[string]any{"resourceVersion": rec.ResourceVersion},
			"status":   statusPatch(v1alpha1.Status{ClusterUID: uid}, "clusterUID", "store")})
		if err != nil {
			return fmt.Errorf("record the cluster of Agent %s: %w", rec.Name, err)
		}
		k.log.InfoContext(ctx, "another cluster has an agent's name now", "agent", rec.Name, "cluster", uid, "before", rec.Status.ClusterUID)
		return k.registry.update(o) // and so this is looked at again
	}
	return k.registry.removeConfirmation(ctx, rec.Name, v1alpha1.ConfirmCluster+uid)
}

func (k *agentReconciler) mergeFromSecret(ctx context.Context, rec agentRecord, secret clusterSecret) error {
	o, err := k.client.Get(ctx, k.registry.ref(rec.Name))
	if err != nil || o == nil {
		return err
	}
	if o, err = k.registry.mergeFromSecret(ctx, o, secret); err != nil {
		return err
	}
	return k.registry.update(o)
}

// applyClusterSecret makes an agent's cluster Secret what it should be. Nothing is written
// where nothing differs.
func (k *agentReconciler) applyClusterSecret(ctx context.Context, rec agentRecord, secret clusterSecret, has bool) error {
	if has && k.desiredSecret(rec, secret).matches(secret) && k.configChecked(secret) {
		return nil
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: cmp.Or(secret.name, defaultSecretName(rec.Name))}
	there, err := k.client.Get(ctx, ref)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	var now clusterSecret
	config := []byte("{}")
	if there != nil {
		if now = readSecret(there); !now.claimableBy(rec.Name) {
			return fmt.Errorf("the Secret %s is there and is not labelled %s=%s: label it if it is this agent's, or remove it", ref.Name, agentLabel, rec.Name)
		}
		config = firstNonEmpty(secretValue(there, "config"), config)
	}
	if there == nil {
		// It is made out of nothing for an Agent that is there, and not for one
		// that another principal has let go since it was seen.
		if ok, err := k.agentExists(ctx, rec); err != nil || !ok {
			return err
		}
	}
	w := k.desiredSecret(rec, now)
	if k.clusterConfig != nil && (there == nil || now.createdByPrincipal()) {
		better, err := k.clusterConfig.ClusterConfig(rec.Name, config)
		if err != nil {
			return fmt.Errorf("make the credentials for Secret %s: %w", ref.Name, err)
		}
		config = firstNonEmpty(better, config)
	}
	if w.matches(now) && hashOf(config) == now.config {
		k.markChecked(now)
		return k.registry.updateSecret(there)
	}
	manifest, err := w.manifest(k.namespace, ref.Name, there, config)
	if err != nil {
		return err
	}
	o, err := k.client.Apply(ctx, ref, secretManager, manifest)
	if err != nil {
		return fmt.Errorf("apply Secret %s: %w", ref.Name, err)
	}
	k.log.InfoContext(ctx, "put an agent's cluster Secret right", "agent", rec.Name, "secret", ref.Name, "new", there == nil)
	if !w.matches(readSecret(o)) {
		return fmt.Errorf("apply Secret %s: something changes it back at once", ref.Name)
	}
	k.markChecked(readSecret(o))
	return k.registry.updateSecret(o)
}

// agentExists reports whether an Agent is there and stays, now and not when it was seen.
func (k *agentReconciler) agentExists(ctx context.Context, seen agentRecord) (bool, error) {
	o, err := k.client.Get(ctx, k.registry.ref(seen.Name))
	if err != nil {
		return false, fmt.Errorf("read Agent %s: %w", seen.Name, err)
	}
	if o == nil || o.UID() != string(seen.UID) || o.IsDeleting() {
		return false, nil // that will be seen
	}
	return true, nil
}

// configChecked reports whether the credentials in a Secret were looked at and found good.
// Those in Secrets of others are theirs.
func (k *agentReconciler) configChecked(s clusterSecret) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.clusterConfig == nil || !s.createdByPrincipal() || k.checkedConfig[s.agent] == s.config
}

func (k *agentReconciler) markChecked(s clusterSecret) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checkedConfig[s.agent] = s.config
}

// recheck has all Secrets looked at again: the credentials in them may have to
// be others now.
func (k *agentReconciler) recheck() {
	k.mu.Lock()
	clear(k.checkedConfig)
	k.mu.Unlock()
	for _, agent := range k.registry.objectNames() {
		k.requeue(agent)
	}
}

// recheckEvery is how often credentials are looked at for their age, and
// revocations too.
const recheckEvery = time.Hour

func (k *agentReconciler) run(ctx context.Context) error {
	var changed <-chan struct{}
	for {
		if k.clusterConfig != nil {
			changed = k.clusterConfig.Changed()
			k.recheck()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-time.After(recheckEvery):
		}
		if err := k.blocklists.Prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "Failed to remove expired blocklist entries, retrying", "error", err)
		}
	}
}

// desiredSecret is what an agent's Secret should be, given what is there: where somebody
// else has made it, where its cluster is reached is for them to say.
func (k *agentReconciler) desiredSecret(rec agentRecord, there clusterSecret) desiredSecret {
	server, made := k.registry.serverOf(rec.Name), there.name == "" || there.createdByPrincipal()
	if !made {
		server = cmp.Or(there.server, server)
	}
	return newDesiredSecret(rec, server, made)
}

// setSecretError keeps what is wrong with an agent's Secret, for its status.
func (k *agentReconciler) setSecretError(agent string, err error) {
	why := ""
	if err != nil && !kube.IsConflict(err) {
		why = err.Error()
	}
	k.mu.Lock()
	was := k.secretErrors[agent]
	if why == "" {
		delete(k.secretErrors, agent)
	} else {
		k.secretErrors[agent] = why
	}
	k.mu.Unlock()
	if was != why {
		k.statusChanged(agent)
	}
}

// clusterSecretError tells what is wrong with an agent's Secret.
func (k *agentReconciler) clusterSecretError(agent string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secretErrors[agent]
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
