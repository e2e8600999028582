package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// secrets implements pki.Secrets for the Argo CD namespace of one side.
type secrets struct{ *cluster }

func (s secrets) Get(ctx context.Context, name string) (*pki.Secret, error) {
	found, err := s.kube.CoreV1().Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(err)
	}
	return secretOf(found), nil
}

func (s secrets) List(ctx context.Context, label string) ([]*pki.Secret, error) {
	list, err := s.kube.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, s.explain(err)
	}
	var all []*pki.Secret
	for i := range list.Items {
		all = append(all, secretOf(&list.Items[i]))
	}
	return all, nil
}

func (s secrets) Put(ctx context.Context, secret *pki.Secret) error {
	content := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Namespace: s.namespace, ResourceVersion: secret.Revision,
			Labels: secret.Labels, Annotations: secret.Annotations},
		Type: corev1.SecretType(secret.Type), Data: secret.Data,
	}
	var err error
	if secret.Revision == "" {
		_, err = s.kube.CoreV1().Secrets(s.namespace).Create(ctx, content, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		_, err = s.kube.CoreV1().Secrets(s.namespace).Update(ctx, content, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	stored, err := s.ignoreConflict(err)
	if err == nil && !stored {
		return fmt.Errorf("write Secret %s: %w", secret.Name, pki.ErrBusy)
	}
	return err
}

func (s secrets) Delete(ctx context.Context, secret *pki.Secret) (bool, error) {
	err := s.kube.CoreV1().Secrets(s.namespace).Delete(ctx, secret.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &secret.Revision}})
	return s.ignoreConflict(err)
}

// ignoreConflict reports whether a write succeeded. A write that lost a race is not an error.
func (s secrets) ignoreConflict(err error) (bool, error) {
	missing := notFound(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if status, ok := err.(apierrors.APIStatus); missing && ok && status.Status().Details != nil && status.Status().Details.Kind == "namespaces" {
		return false, s.explain(err)
	}
	if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && !foreign(err) || missing {
		return false, nil
	}
	return err == nil, s.explain(err)
}

func secretOf(s *corev1.Secret) *pki.Secret {
	return &pki.Secret{Name: s.Name, Revision: s.ResourceVersion, Type: string(s.Type), Labels: s.Labels, Annotations: s.Annotations, Data: s.Data}
}
