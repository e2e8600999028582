package kube

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// replaceStatus writes the status of an object as it was just stored. The API server ignores it in a write of the object.
func (c *Client) replaceStatus(ctx context.Context, ref kind.Ref, stored *kind.Object, status []byte) (*kind.Object, error) {
	if rawjson.IsNull(status) {
		status = []byte("{}")
	}
	if now := stored.Get("status"); bytes.Equal(now, status) || rawjson.IsNull(now) && string(status) == "{}" {
		return stored, nil
	}
	body, err := rawjson.Set(stored.Raw(), status, "status")
	if err != nil {
		return nil, fmt.Errorf("set the status of %s: %w", ref.Name, err)
	}
	return c.sendObject(ctx, http.MethodPut, c.urlOf(ref.Resource, ref.Namespace, ref.Name+"/status", fieldManager), mediaTypeJSON, body)
}
