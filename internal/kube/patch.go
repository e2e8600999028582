package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Apply makes an object have everything that is given, and nothing any more that was given before and is not now: the
// API server remembers what a manager has applied. What others have set stays, unless it is the very same field. A
// resource version in it makes it conditional.
func (c *Client) Apply(ctx context.Context, ref kind.Ref, manager string, object any) (*kind.Object, error) {
	query := url.Values{"fieldManager": {manager}, "force": {"true"}}
	return c.patch(ctx, c.urlOf(ref.Resource, ref.Namespace, ref.Name, query), "application/apply-patch+yaml", ref, object)
}

// PatchStatus merges a change into the status of an object that has it as a subresource.
func (c *Client) PatchStatus(ctx context.Context, ref kind.Ref, change any) (*kind.Object, error) {
	address := c.urlOf(ref.Resource, ref.Namespace, ref.Name+"/status", fieldManager)
	return c.patch(ctx, address, "application/merge-patch+json", ref, change)
}

// PatchOperation is one step of a JSON patch (RFC 6902).
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// JSONPatch carries out steps on an object, all or none: a test among them makes it conditional.
func (c *Client) JSONPatch(ctx context.Context, ref kind.Ref, steps ...PatchOperation) (*kind.Object, error) {
	return c.patch(ctx, c.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), "application/json-patch+json", ref, steps)
}

func (c *Client) patch(ctx context.Context, address, contentType string, ref kind.Ref, change any) (*kind.Object, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("make a patch of %s %s: %w", ref.Resource.Kind, ref.Name, err)
	}
	b, err := c.send(ctx, http.MethodPatch, address, mediaTypeJSON, contentType, body)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// Delete asks for the deletion of exactly the object that was looked at. One that is gone is no error.
func (c *Client) Delete(ctx context.Context, ref kind.Ref, o *kind.Object) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
		"preconditions": map[string]string{"uid": o.UID(), "resourceVersion": o.ResourceVersion()}})
	if err != nil {
		return fmt.Errorf("make delete options: %w", err)
	}
	b, err := c.do(ctx, http.MethodDelete, c.urlOf(ref.Resource, ref.Namespace, ref.Name, nil), body)
	if IsNotFound(err) {
		return nil
	}
	if err == nil {
		_, err = deleted(b, o)
	}
	return err
}

// deleted reads the answer to a deletion: a Status or the object, as it was last
// or as it is now. It returns what finalizers keep for now; nil: it is gone.
// Anything else does not come from the API server, and says nothing.
func deleted(b []byte, o *kind.Object) (*kind.Object, error) {
	if rawjson.Text(b, "kind") == "Status" && rawjson.Text(b, "status") == "Success" {
		return nil, nil
	}
	left, err := parse(b)
	switch {
	case err != nil || left.UID() != o.UID():
		return nil, fmt.Errorf("delete %s: the answer is neither a Status nor the object", o.Name())
	case left.IsDeleting() && len(left.Finalizers()) > 0:
		return left, nil
	}
	return nil, nil
}

// IsRejected reports whether the API server does not accept it as it is, now or later.
func IsRejected(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.reason != "" &&
		(e.status == http.StatusUnprocessableEntity || e.status == http.StatusBadRequest || e.status == http.StatusForbidden)
}
