package kube

import (
	"context"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Secrets implements pki.Secrets for one namespace.
type Secrets struct {
	Client    *Client
	Namespace string
}

var _ pki.Secrets = Secrets{}

func (s Secrets) ref(name string) kind.Ref {
	return kind.Ref{Resource: kind.Secrets, Namespace: s.Namespace, Name: name}
}

// Get implements pki.Secrets.
func (s Secrets) Get(ctx context.Context, name string) (*pki.Secret, error) {
	o, err := s.Client.Get(ctx, s.ref(name))
	if err != nil || o == nil {
		return nil, err
	}
	return toSecret(o)
}

// List implements pki.Secrets.
func (s Secrets) List(ctx context.Context, label string) ([]*pki.Secret, error) {
	objects, err := s.Client.List(ctx, Watch{Resource: kind.Secrets, Namespace: s.Namespace, Selector: label})
	if err != nil {
		return nil, err
	}
	var all []*pki.Secret
	for _, o := range objects {
		secret, err := toSecret(o)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	return all, nil
}

// Put implements pki.Secrets. Other metadata of the Secret, such as owner references, stays.
func (s Secrets) Put(ctx context.Context, secret *pki.Secret) error {
	var err error
	if secret.Revision == "" {
		_, err = s.Client.Create(ctx, s.ref(secret.Name), map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": secret.Type, "data": secret.Data,
			"metadata": map[string]any{"name": secret.Name, "namespace": s.Namespace, "labels": secret.Labels, "annotations": secret.Annotations},
		})
	} else {
		_, err = s.Client.JSONPatch(ctx, s.ref(secret.Name),
			PatchOperation{Op: "replace", Path: "/metadata/resourceVersion", Value: secret.Revision},
			PatchOperation{Op: "add", Path: "/metadata/labels", Value: secret.Labels},
			PatchOperation{Op: "add", Path: "/metadata/annotations", Value: secret.Annotations},
			PatchOperation{Op: "add", Path: "/data", Value: secret.Data})
	}
	if IsConflict(err) || secret.Revision != "" && IsNotFound(err) {
		return fmt.Errorf("write Secret %s: %w", secret.Name, pki.ErrBusy)
	}
	return err
}

// Delete implements pki.Secrets.
func (s Secrets) Delete(ctx context.Context, secret *pki.Secret) (bool, error) {
	_, err := s.Client.deleteIf(ctx, s.ref(secret.Name), map[string]string{"resourceVersion": secret.Revision})
	if IsConflict(err) || IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func toSecret(o *kind.Object) (*pki.Secret, error) {
	data, err := SecretData(o)
	if err != nil {
		return nil, err
	}
	return &pki.Secret{Name: o.Name(), Revision: o.ResourceVersion(), Type: rawjson.Text(o.Raw(), "type"),
		Labels: o.Labels(), Annotations: o.Annotations(), Data: data}, nil
}
