package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// WatchObject calls f with one object, at start and after each change, until the context ends. If the object does not
// exist, f gets nil.
func WatchObject(ctx context.Context, c *Client, ref kind.Ref, log *slog.Logger, jitter func() float64, f func(*kind.Object)) error {
	w := Watch{Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name}
	return NewWatcher(c, w, objectSink(f), log.With("name", ref.Name), jitter).Run(ctx)
}

// objectSink converts the inputs of a watch of one object for WatchObject.
func objectSink(f func(*kind.Object)) func(context.Context, reconcile.Input) error {
	return func(_ context.Context, in reconcile.Input) error {
		switch in := in.(type) {
		case reconcile.List:
			var o *kind.Object
			if len(in.Objects) > 0 {
				o = in.Objects[0]
			}
			f(o)
		case reconcile.Observed:
			f(in.Object)
		case reconcile.Deleted:
			f(nil)
		}
		return nil
	}
}

// WatchSecrets returns functions that call each callback with the data of its Secret, at start and after each change.
// If the Secret does not exist, the data is nil. Errors of a callback are logged.
func WatchSecrets(c *Client, namespace string, secrets map[string]func(map[string][]byte) error,
	log *slog.Logger, jitter func() float64,
) []func(context.Context) error {
	var runs []func(context.Context) error
	for name, use := range secrets {
		ref := kind.Ref{Resource: kind.Secrets, Namespace: namespace, Name: name}
		runs = append(runs, func(ctx context.Context) error {
			return WatchObject(ctx, c, ref, log, jitter, func(o *kind.Object) {
				data, err := SecretData(o)
				if err == nil {
					err = use(data)
				}
				if err != nil {
					log.WarnContext(ctx, "Failed to use Secret", "secret", name, "error", err)
				}
			})
		})
	}
	return runs
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
