package cli

import (
	"cmp"
	"context"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// secrets implements pki.Secrets for the certificates of one side. Its errors have a remedy.
type secrets struct{ *cluster }

func (s secrets) store() kube.Secrets {
	return kube.Secrets{Client: s.raw, Namespace: cmp.Or(s.pki, s.namespace)}
}

func (s secrets) Get(ctx context.Context, name string) (*pki.Secret, error) {
	found, err := s.store().Get(ctx, name)
	return found, s.explain(err)
}

func (s secrets) List(ctx context.Context, label string) ([]*pki.Secret, error) {
	found, err := s.store().List(ctx, label)
	return found, s.explain(err)
}

func (s secrets) Put(ctx context.Context, secret *pki.Secret) error {
	return s.explain(s.store().Put(ctx, secret))
}

func (s secrets) Delete(ctx context.Context, secret *pki.Secret) (bool, error) {
	deleted, err := s.store().Delete(ctx, secret)
	return deleted, s.explain(err)
}
