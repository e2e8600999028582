package kube

import (
	"context"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

var crds = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// WatchSchemas posts the schema version of Argo CD's CRDs, at start and after each change. It watches the metadata of these
// CRDs by name. If a CRD cannot be read, it posts an empty version and retries.
func (h *Runner) WatchSchemas() {
	for _, r := range reconcile.Resources() {
		if r.Group == "" {
			continue // not a custom resource
		}
		w := Watch{Resource: crds, Name: r.Plural + "." + r.Group, Metadata: true}
		posted := false
		post := func(ctx context.Context, o *kind.Object) {
			posted = true
			_ = h.Post(ctx, reconcile.Schema{Resource: r, Version: schemaVersion(o)}) // fails only if ctx ends
		}
		onObject := ObjectSink(w.Name, post)
		h.Watch(w, func(ctx context.Context, in reconcile.Input) error {
			if _, unreadable := in.(reconcile.Unreadable); unreadable && !posted {
				post(ctx, nil) // a version that was posted before may still be right
			}
			return onObject(ctx, in)
		})
	}
}

// schemaVersion identifies a CRD by UID and generation. It returns "" if there is no CRD.
func schemaVersion(o *kind.Object) string {
	if o == nil {
		return ""
	}
	generation, err := strconv.ParseInt(string(o.Get("metadata", "generation")), 10, 64)
	if err != nil {
		return o.ResourceVersion()
	}
	return o.UID() + "/" + strconv.FormatInt(generation, 10)
}
