package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Resources that principal and agent use in addition to those of the kinds.
var (
	Namespaces = kind.Resource{Version: "v1", Plural: "namespaces", Kind: "Namespace"}
	Leases     = kind.Resource{Group: "coordination.k8s.io", Version: "v1", Plural: "leases", Kind: "Lease"}
)

// ClusterUID returns the UID of namespace kube-system, which identifies the cluster.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	o, err := c.Get(ctx, kind.Ref{Resource: Namespaces, Name: "kube-system"})
	if err != nil {
		return "", fmt.Errorf("get namespace kube-system: %w", err)
	}
	if o == nil {
		return "", errors.New("get namespace kube-system: not found")
	}
	return o.UID(), nil
}

// Create creates an object, given as any value that marshals to it.
func (c *Client) Create(ctx context.Context, ref kind.Ref, object any) (*kind.Object, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", ref.Resource.Kind, ref.Name, err)
	}
	return c.create(ctx, ref, body)
}

func (c *Client) create(ctx context.Context, ref kind.Ref, body []byte) (*kind.Object, error) {
	return c.sendObject(ctx, http.MethodPost, c.urlOf(ref.Resource, ref.Namespace, "", fieldManager), mediaTypeJSON, body)
}

// IsConflict reports whether an object already exists or has changed since it was read.
func IsConflict(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.conflict()
}

// IsNotFound reports whether the requested object does not exist. A 404 that is not a Status of that object does not
// count: it may come from a proxy, or the resource is not served.
func IsNotFound(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.notFound()
}
