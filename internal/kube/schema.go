package kube

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

var crds = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// WatchSchemas returns what, while it runs, tells the node how the CRDs of its
// resources are defined, now and whenever that changes. It watches the metadata of
// these CRDs, by name. Where it may not read them it tells the node so, and tries
// again.
func WatchSchemas(c *Client, post func(context.Context, reconcile.Input) error, log *slog.Logger, jitter func() float64) []func(context.Context) error {
	var runs []func(context.Context) error
	for _, r := range []kind.Resource{kind.Applications, kind.AppProjects} {
		w := Watch{Resource: crds, Name: r.Plural + "." + r.Group, Metadata: true}
		runs = append(runs, func(ctx context.Context) error {
			told := false
			tell := func(version string) {
				told = true
				_ = post(ctx, reconcile.Schema{Resource: r, Version: version}) // fails at the end of the process only
			}
			follow := objectSink(func(o *kind.Object) { tell(schemaVersion(o)) })
			sink := func(ctx context.Context, in reconcile.Input) error {
				if _, blind := in.(reconcile.Unreadable); blind && !told {
					tell("") // what was told before may still be true
				}
				return follow(ctx, in)
			}
			return NewWatcher(c, w, sink, log.With("name", w.Name), jitter).Run(ctx)
		})
	}
	return runs
}

// schemaVersion identifies the definition of a resource: another CRD has another
// UID, and a changed one another generation. Empty: there is none.
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
