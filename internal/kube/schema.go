package kube

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

var crds = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// WatchSchemas returns functions that post the schema version of Argo CD's CRDs, at start and after each change. They
// watch the metadata of these CRDs by name. If a CRD cannot be read, they post an empty version and retry.
func WatchSchemas(c *Client, post func(context.Context, reconcile.Input) error, log *slog.Logger, jitter func() float64) []func(context.Context) error {
	var runs []func(context.Context) error
	for _, r := range reconcile.Resources() {
		if r.Group == "" {
			continue // not a custom resource
		}
		w := Watch{Resource: crds, Name: r.Plural + "." + r.Group, Metadata: true}
		runs = append(runs, func(ctx context.Context) error {
			posted := false
			send := func(version string) {
				posted = true
				_ = post(ctx, reconcile.Schema{Resource: r, Version: version}) // fails only if ctx ends
			}
			onObject := objectSink(func(o *kind.Object) { send(schemaVersion(o)) })
			sink := func(ctx context.Context, in reconcile.Input) error {
				if _, unreadable := in.(reconcile.Unreadable); unreadable && !posted {
					send("") // a version that was posted before may still be right
				}
				return onObject(ctx, in)
			}
			return NewWatcher(c, w, sink, log.With("name", w.Name), jitter).Run(ctx)
		})
	}
	return runs
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
