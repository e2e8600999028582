package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/install"
)

// poll repeats done until it returns true.
func poll(ctx context.Context, timeout time.Duration, what string, done func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, timeout, true, done)
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s: not after %s. To continue, run the command again", what, timeout)
	}
	return err
}

// scale sets the replicas of a Deployment, and the recorded number of replicas. A nil record removes it. The patch fails if
// the Deployment changed since it was read.
func (s *importSide) scale(ctx context.Context, d *appsv1.Deployment, replicas int32, record any) (*appsv1.Deployment, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas},
		"metadata": map[string]any{"resourceVersion": d.ResourceVersion, "annotations": map[string]any{replicasAnnotation: record}}})
	if err != nil {
		return nil, fmt.Errorf("scale Deployment %s: %w", d.Name, err)
	}
	changed, err := s.kube.AppsV1().Deployments(s.namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("scale Deployment %s: %w", d.Name, s.explain(err))
	}
	return changed, nil
}

// pods returns the pods of a Deployment, also those that are terminating. Labels are not sufficient, because our pods have
// those of the existing argocd-agent.
func (s *importSide) pods(ctx context.Context, d *appsv1.Deployment) ([]string, error) {
	options := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)}
	sets, err := s.kube.AppsV1().ReplicaSets(s.namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list ReplicaSets: %w", s.explain(err))
	}
	var own []types.UID
	for i := range sets.Items {
		if metav1.IsControlledBy(&sets.Items[i], d) {
			own = append(own, sets.Items[i].UID)
		}
	}
	pods, err := s.kube.CoreV1().Pods(s.namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", s.explain(err))
	}
	var names []string
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && slices.Contains(own, owner.UID) {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names, nil
}

// stop scales a Deployment to 0 and waits until its pods are gone. Only then another program may start.
func (s *importSide) stop(ctx context.Context, d *appsv1.Deployment, timeout time.Duration, record any) error {
	if replicas(d) > 0 {
		changed, err := s.scale(ctx, d, 0, record)
		if err != nil {
			return err
		}
		*d = *changed
	}
	return poll(ctx, timeout, "stop Deployment "+d.Name, func(ctx context.Context) (bool, error) {
		now, err := s.kube.AppsV1().Deployments(s.namespace).Get(ctx, d.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get Deployment %s: %w", d.Name, s.explain(err))
		}
		if replicas(now) > 0 {
			return false, fmt.Errorf("another program scaled Deployment %s to %d: disable that, then run the command again", d.Name, replicas(now))
		}
		pods, err := s.pods(ctx, now)
		return err == nil && now.Status.ObservedGeneration >= now.Generation && len(pods) == 0, err
	})
}

// stopOld stops the existing program.
func (s *importSide) stopOld(ctx context.Context, o *importOptions, step func(string, ...any)) error {
	if err := s.stop(ctx, s.old, o.timeout, strconv.Itoa(int(replicas(s.old)))); err != nil {
		return err
	}
	step("Deployment %s is stopped", s.old.Name)
	return nil
}

// start installs our program after the existing one was stopped.
func (s *importSide) start(ctx context.Context, o *importOptions, step func(string, ...any)) error {
	if former, err := strconv.Atoi(s.old.Annotations[replicasAnnotation]); err == nil && s.role == rolePrincipal {
		s.pod.Replicas = former
	}
	text, err := s.manifests(o)
	if err != nil {
		return err
	}
	n, err := s.apply(ctx, text)
	if err != nil {
		return fmt.Errorf("install the %s: %w", s.role, err)
	}
	step("Deployment %s is installed, with %d objects", s.importedName(), n)
	if !o.wait {
		return nil
	}
	return poll(ctx, o.timeout, "wait until Deployment "+s.importedName()+" is ready", func(ctx context.Context) (bool, error) {
		d, err := s.kube.AppsV1().Deployments(s.namespace).Get(ctx, s.importedName(), metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.ReadyReplicas > 0, nil
	})
}

func (s *importSide) manifests(o *importOptions) ([]byte, error) {
	if s.role == rolePrincipal {
		return install.Principal{Namespace: s.namespace, Image: o.image, Settings: s.values, NamespaceCreate: s.flags["namespace-create-enable"] == "true",
			Imported: &s.pod}.Manifests()
	}
	noProxy := s.flags["enable-resource-proxy"] == "false"
	return install.Agent{Namespace: s.namespace, Image: o.image, Settings: s.values, AllNamespaces: s.allNamespaces(),
		NoRead: noProxy, NoWrite: noProxy, Exec: o.exec, Imported: &s.pod}.Manifests()
}

// register creates the Agents of the cluster Secrets, without a mode. The principal refuses an agent without a mode, so that
// no agent is active before its own import.
func (s *importSide) register(ctx context.Context, step func(string, ...any)) error {
	definitions, err := install.Definitions()
	if err != nil {
		return err
	}
	if _, err := s.apply(ctx, definitions); err != nil {
		return fmt.Errorf("install the CRDs: %w", err)
	}
	step("CRDs are installed")
	for i := range s.agents {
		if err := s.backUp(ctx, &s.agents[i]); err != nil {
			return err
		}
	}
	step("%s copied", pluralize(len(s.agents), "cluster Secret"))
	for i := range s.agents {
		if _, err := s.ensureAgent(ctx, s.agents[i].Labels[agentNameLabel]); err != nil {
			return err
		}
	}
	step("%s registered", pluralize(len(s.agents), "agent"))
	return nil
}

// ensureAgent returns an Agent, and creates it if there is none.
func (s *importSide) ensureAgent(ctx context.Context, name string) (*v1alpha1.Agent, error) {
	a := agents{s.cluster}
	var agent *v1alpha1.Agent
	var failed error // of the last attempt
	// The API server serves a new CRD after a moment.
	err := poll(ctx, time.Minute, "create agent "+name, func(ctx context.Context) (bool, error) {
		found, err := a.in().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			agent, err = typed(found)
			return err == nil, err
		case notFound(err):
			agent, err = a.create(ctx, &v1alpha1.Agent{TypeMeta: metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind},
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace}})
		default:
			err = a.failed("get agent "+name, name, err)
		}
		if failed = err; apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return false, err
		}
		return err == nil, nil
	})
	if err != nil && failed != nil && !errors.Is(err, failed) {
		err = fmt.Errorf("%w (%w)", err, failed)
	}
	return agent, err
}

// backUp copies a cluster Secret, once. The copy has no label of Argo CD.
func (s *importSide) backUp(ctx context.Context, secret *corev1.Secret) error {
	_, err := s.kube.CoreV1().Secrets(s.namespace).Create(ctx, &corev1.Secret{Data: secret.Data, ObjectMeta: metav1.ObjectMeta{Name: backupName(secret.Name),
		Labels: map[string]string{partOfLabel: ourPartOf, backupLabel: string(secret.UID)}}}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy Secret %s: %w", secret.Name, s.explain(err))
	}
	return nil
}

// changedSecrets returns the cluster Secrets whose data differs from that of their copies, with the data of the copies. A copy
// of a deleted Secret is not used. It returns an error if a user has edited such a Secret since the import, unless overwrite is
// set.
func (s *importSide) changedSecrets(ctx context.Context, overwrite bool) (changed []corev1.Secret, err error) {
	if err := s.clusterSecrets(ctx); err != nil {
		return nil, err
	}
	var edited []string
	for _, secret := range s.agents {
		copied, err := s.kube.CoreV1().Secrets(s.namespace).Get(ctx, backupName(secret.Name), metav1.GetOptions{})
		if notFound(err) || err == nil && copied.Labels[backupLabel] != string(secret.UID) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get Secret %s: %w", backupName(secret.Name), s.explain(err))
		}
		if maps.EqualFunc(secret.Data, copied.Data, bytes.Equal) {
			continue
		}
		if keys := editedKeys(&secret, copied.Data); len(keys) > 0 {
			edited = append(edited, fmt.Sprintf("%s (%s)", secret.Name, strings.Join(keys, ", ")))
		}
		secret.Data = copied.Data
		changed = append(changed, secret)
	}
	if len(edited) > 0 && !overwrite {
		return nil, fmt.Errorf("%s edited since the import, and the revert would undo that: %s. Compare them with their copies (%s), undo the edits, or set --accept-risks and make them again",
			pluralize(len(edited), "cluster Secret"), shortList(edited, 8), backupName("NAME"))
	}
	return changed, nil
}

// principalManager is the field manager with which the principal applies the data of cluster Secrets.
const principalManager = "argocd-agent-principal"

// editedKeys returns the keys of a Secret that differ from its copy and have another value than the one that the principal
// applied. It takes a key from all other field managers, until one of them changes it.
func editedKeys(secret *corev1.Secret, copied map[string][]byte) (keys []string) {
	owners := map[string][]string{} // field managers by key
	for _, entry := range secret.ManagedFields {
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			continue
		}
		for field := range fields.Data {
			key := strings.TrimPrefix(field, "f:")
			owners[key] = append(owners[key], entry.Manager)
		}
	}
	all := maps.Clone(copied)
	maps.Copy(all, secret.Data)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		now, exists := secret.Data[key]
		before, existed := copied[key]
		if (exists != existed || !bytes.Equal(now, before)) && !slices.Equal(owners[key], []string{principalManager}) {
			keys = append(keys, key)
		}
	}
	return keys
}

// restoreSecrets gives the cluster Secrets the data of their copies.
func (s *importSide) restoreSecrets(ctx context.Context, overwrite bool) (restored int, err error) {
	changed, err := s.changedSecrets(ctx, overwrite)
	if err != nil {
		return 0, err
	}
	for i := range changed {
		if _, err := s.kube.CoreV1().Secrets(s.namespace).Update(ctx, &changed[i], metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return i, fmt.Errorf("restore Secret %s: %w", changed[i].Name, s.explain(err))
		}
	}
	return len(changed), nil
}

// revert stops our program and starts the existing one.
func (s *importSide) revert(ctx context.Context, o *importOptions, step func(string, ...any)) error {
	if s.role == rolePrincipal {
		if _, err := s.changedSecrets(ctx, o.acceptRisks); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	if s.ours != nil {
		if err := s.stop(ctx, s.ours, o.timeout, nil); err != nil {
			return err
		}
		step("Deployment %s is stopped", s.ours.Name)
	}
	if s.role == rolePrincipal {
		restored, err := s.restoreSecrets(ctx, o.acceptRisks)
		if err != nil {
			return err
		}
		step("%s restored", pluralize(restored, "cluster Secret"))
	}
	former, recorded := s.old.Annotations[replicasAnnotation]
	if !recorded {
		step("Deployment %s has %s and was not stopped by an import", s.old.Name, pluralize(int(replicas(s.old)), "replica"))
		return nil
	}
	n, err := strconv.ParseInt(former, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("annotation %s of Deployment %s is %q: set it to the former number of replicas", replicasAnnotation, s.old.Name, former)
	}
	if _, err := s.scale(ctx, s.old, int32(n), nil); err != nil {
		return err
	}
	step("Deployment %s is started, with %s", s.old.Name, pluralize(int(n), "replica"))
	return nil
}
