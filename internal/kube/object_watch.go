package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// ObjectSink returns a sink that calls f with the named object, at start and after each change. If the object does not
// exist, f gets nil.
func ObjectSink(name string, f func(context.Context, *kind.Object)) Sink {
	return func(ctx context.Context, in reconcile.Input) error {
		switch in := in.(type) {
		case reconcile.List:
			if i := slices.IndexFunc(in.Objects, func(o *kind.Object) bool { return o.Name() == name }); i >= 0 {
				f(ctx, in.Objects[i])
			} else {
				f(ctx, nil)
			}
		case reconcile.Observed:
			if in.Object.Name() == name {
				f(ctx, in.Object)
			}
		case reconcile.Deleted:
			if in.Ref.Name == name {
				f(ctx, nil)
			}
		}
		return nil
	}
}

// WatchSecrets calls each callback with the data of its Secret, at start and after each change. If the Secret does not
// exist, the data is nil. Errors of a callback are logged.
func (h *Runner) WatchSecrets(namespace string, secrets map[string]func(map[string][]byte) error) {
	for name, use := range secrets {
		h.Watch(Watch{Resource: kind.Secrets, Namespace: namespace, Name: name}, ObjectSink(name, func(ctx context.Context, o *kind.Object) {
			data, err := SecretData(o)
			if err == nil {
				err = use(data)
			}
			if err != nil {
				h.cfg.Log.WarnContext(ctx, "Failed to use Secret", "secret", name, "error", err)
			}
		}))
	}
}

// SecretData returns the decoded data of a Secret, and nil for nil.
func SecretData(o *kind.Object) (map[string][]byte, error) {
	if o == nil {
		return nil, nil
	}
	encoded, _ := rawjson.StringMap(o.Get("data"))
	data := make(map[string][]byte, len(encoded))
	for key, value := range encoded {
		var err error
		if data[key], err = base64.StdEncoding.DecodeString(value); err != nil {
			return nil, fmt.Errorf("decode %s of Secret %s: %w", key, o.Name(), err)
		}
	}
	return data, nil
}

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

// WatchCRD calls f with whether the CRD of a resource is installed, at start and after each change.
func (h *Runner) WatchCRD(r kind.Resource, f func(ctx context.Context, installed bool)) {
	w := Watch{Resource: crds, Name: r.Plural + "." + r.Group, Metadata: true}
	h.Watch(w, ObjectSink(w.Name, func(ctx context.Context, o *kind.Object) { f(ctx, o != nil) }))
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
