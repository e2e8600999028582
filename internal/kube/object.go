package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Resources that the assemblies use beside those of the kinds.
var (
	Namespaces = kind.Resource{Version: "v1", Plural: "namespaces", Kind: "Namespace"}
	Leases     = kind.Resource{Group: "coordination.k8s.io", Version: "v1", Plural: "leases", Kind: "Lease"}
)

// ClusterUID identifies a cluster: the UID of its kube-system namespace, which
// lives as long as the cluster does.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	o, err := c.Get(ctx, kind.Ref{Resource: Namespaces, Name: "kube-system"})
	if err != nil {
		return "", fmt.Errorf("read the namespace kube-system, whose UID identifies the cluster: %w", err)
	}
	if o == nil {
		return "", fmt.Errorf("read the namespace kube-system, whose UID identifies the cluster: there is none")
	}
	return o.UID(), nil
}

// Create stores a new object, given as anything that marshals to it.
func (c *Client) Create(ctx context.Context, ref kind.Ref, object any) (*kind.Object, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("make %s %s: %w", ref.Resource.Kind, ref.Name, err)
	}
	b, err := c.do(ctx, http.MethodPost, c.urlOf(ref.Resource, ref.Namespace, "", fieldManager), body)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// Patch merges a change into an object.
func (c *Client) Patch(ctx context.Context, ref kind.Ref, change any) (*kind.Object, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("make a patch of %s %s: %w", ref.Resource.Kind, ref.Name, err)
	}
	resp, err := c.send(ctx, http.MethodPatch, c.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), mediaTypeJSON, "application/merge-patch+json", body)
	if err != nil {
		return nil, err
	}
	return parse(resp)
}

// IsConflict reports whether the API server has said that an object is there
// already, or is not as it was read.
func IsConflict(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.conflict()
}

// IsNotFound reports whether the API server has said that there is no object of
// the name that was asked for. A 404 that is not a Status of that object says
// nothing: it may come from a proxy, or the resource is not served.
func IsNotFound(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.notFound()
}
