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

// WatchObject tells f of one object, now and whenever it changes; nil: there is
// none. It runs until the context ends.
func WatchObject(ctx context.Context, c *Client, ref kind.Ref, log *slog.Logger, jitter func() float64, f func(*kind.Object)) error {
	w := Watch{Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name}
	return NewWatcher(c, w, objectSink(f), log.With("name", ref.Name), jitter).Run(ctx)
}

// objectSink turns what a watch of one object says into that object; nil: there is none.
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

// WatchSecrets returns what, while it runs, tells each function the data of its Secret, now and whenever it
// changes; nil: there is no such Secret. What it cannot use is logged.
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
					log.WarnContext(ctx, "cannot use a Secret", "secret", name, "error", err)
				}
			})
		})
	}
	return runs
}

// SecretData is what a Secret holds; nil of nil.
func SecretData(o *kind.Object) (map[string][]byte, error) {
	if o == nil {
		return nil, nil
	}
	encoded, _ := rawjson.StringMap(o.Get("data")) // none: an empty Secret
	data := make(map[string][]byte, len(encoded))
	for key, value := range encoded {
		var err error
		if data[key], err = base64.StdEncoding.DecodeString(value); err != nil {
			return nil, fmt.Errorf("read %s of Secret %s: %w", key, o.Name(), err)
		}
	}
	return data, nil
}
