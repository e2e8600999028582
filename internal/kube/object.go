package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
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

// ServerVersion returns the version of Kubernetes, such as v1.34.1.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	u := *c.base
	u.Path = path.Join("/", u.Path, "version")
	b, err := c.send(ctx, http.MethodGet, u.String(), mediaTypeJSON, "", nil)
	return rawjson.Text(b, "gitVersion"), err
}

// First returns one object of a cluster-scoped resource. It returns nil if there is none.
func (c *Client) First(ctx context.Context, r kind.Resource) (*kind.Object, error) {
	b, err := c.send(ctx, http.MethodGet, c.urlOf(r, "", "", url.Values{"limit": {"1"}}), mediaTypeJSON, "", nil)
	if err != nil {
		return nil, err
	}
	items, err := rawjson.Elements(rawjson.Get(b, "items"))
	if err != nil || len(items) == 0 {
		return nil, err
	}
	return parseItem(items[0], r)
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

// Update replaces an object, if its resourceVersion is still that of o.
func (c *Client) Update(ctx context.Context, ref kind.Ref, o *kind.Object) (*kind.Object, error) {
	return c.sendObject(ctx, http.MethodPut, c.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), mediaTypeJSON, o.Raw())
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

// Apply is a server-side apply that takes over conflicting fields. Fields that manager applied before and that are
// missing now are removed. A resourceVersion in object makes it conditional.
func (c *Client) Apply(ctx context.Context, ref kind.Ref, manager string, object any) (*kind.Object, error) {
	query := url.Values{"fieldManager": {manager}, "force": {"true"}}
	return c.patch(ctx, c.urlOf(ref.Resource, ref.Namespace, ref.Name, query), "application/apply-patch+yaml", ref, object)
}

// PatchStatus applies a JSON merge patch to the status subresource.
func (c *Client) PatchStatus(ctx context.Context, ref kind.Ref, change any) (*kind.Object, error) {
	address := c.urlOf(ref.Resource, ref.Namespace, ref.Name+"/status", fieldManager)
	return c.patch(ctx, address, "application/merge-patch+json", ref, change)
}

// PatchOperation is one operation of a JSON patch (RFC 6902).
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// JSONPatch applies all operations or none. A test operation makes it conditional.
func (c *Client) JSONPatch(ctx context.Context, ref kind.Ref, operations ...PatchOperation) (*kind.Object, error) {
	return c.patch(ctx, c.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), "application/json-patch+json", ref, operations)
}

// Patch applies a JSON merge patch.
func (c *Client) Patch(ctx context.Context, ref kind.Ref, change any) (*kind.Object, error) {
	return c.patch(ctx, c.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), "application/merge-patch+json", ref, change)
}

func (c *Client) patch(ctx context.Context, address, contentType string, ref kind.Ref, change any) (*kind.Object, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s %s: %w", ref.Resource.Kind, ref.Name, err)
	}
	return c.sendObject(ctx, http.MethodPatch, address, contentType, body)
}

// Delete deletes an object if UID and resourceVersion are still those of o. It succeeds if the object does not exist.
func (c *Client) Delete(ctx context.Context, ref kind.Ref, o *kind.Object) error {
	_, err := c.delete(ctx, ref, o)
	if IsNotFound(err) {
		return nil
	}
	return err
}

// delete deletes an object if UID and resourceVersion are still those of o. It returns the object if finalizers remain,
// and nil if the object no longer exists.
func (c *Client) delete(ctx context.Context, ref kind.Ref, o *kind.Object) (*kind.Object, error) {
	b, err := c.deleteIf(ctx, ref, map[string]string{"uid": o.UID(), "resourceVersion": o.ResourceVersion()})
	if err != nil {
		return nil, err
	}
	return deleted(b, o)
}

func (c *Client) deleteIf(ctx context.Context, ref kind.Ref, preconditions map[string]string) ([]byte, error) {
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": preconditions})
	if err != nil {
		return nil, fmt.Errorf("encode delete options: %w", err)
	}
	return c.send(ctx, http.MethodDelete, c.urlOf(ref.Resource, ref.Namespace, ref.Name, nil), mediaTypeJSON, mediaTypeJSON, body)
}

// deleted reads the response to a deletion: a Status, or the object before or after the deletion. It returns the object
// if finalizers remain. Any other response does not come from the API server and is an error.
func deleted(b []byte, o *kind.Object) (*kind.Object, error) {
	if rawjson.Text(b, "kind") == "Status" && rawjson.Text(b, "status") == "Success" {
		return nil, nil
	}
	left, err := parse(b)
	switch {
	case err != nil || left.UID() != o.UID():
		return nil, fmt.Errorf("delete %s: the response is neither a Status nor the object", o.Name())
	case left.IsDeleting() && len(left.Finalizers()) > 0:
		return left, nil
	}
	return nil, nil
}

// IsRejected reports whether the API server does not accept the content of a request.
func IsRejected(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.reason != "" &&
		(e.status == http.StatusUnprocessableEntity || e.status == http.StatusBadRequest || e.status == http.StatusForbidden)
}
