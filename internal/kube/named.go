package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

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
