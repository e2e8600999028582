package principal

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// argoConfig is the ConfigMap with Argo CD's settings.
const argoConfig = "argocd-cm"

// followSettings tells the node what Argo CD is set to. What makes no sense is
// logged, and what was set before stays in force.
func (p *principal) followSettings(ctx context.Context) error {
	ref := kind.Ref{Resource: kind.ConfigMaps, Namespace: p.cfg.Namespace, Name: argoConfig}
	return kube.WatchObject(ctx, p.client, ref, p.log, p.cfg.Jitter, func(o *kind.Object) {
		settings, err := readSettings(o)
		if err != nil {
			p.log.WarnContext(ctx, "cannot make sense of Argo CD's settings; what they were before stays in force", "configmap", argoConfig, "error", err)
		} else if p.runner.Post(ctx, settings) != nil {
			return // at the end
		}
		select {
		case <-p.settingsRead:
		default:
			close(p.settingsRead) // by the one goroutine that follows
		}
	})
}

// readSettings reads what concerns agents; of nil, the defaults.
func readSettings(o *kind.Object) (reconcile.ArgoSettings, error) {
	var settings reconcile.ArgoSettings
	if o == nil {
		return settings, nil
	}
	data, _ := rawjson.StringMap(o.Get("data")) // none: an empty ConfigMap
	if settings.InstanceLabel = data["application.instanceLabelKey"]; settings.InstanceLabel != "" {
		if wrong := validation.IsQualifiedName(settings.InstanceLabel); len(wrong) > 0 {
			return settings, fmt.Errorf("application.instanceLabelKey %q: %s", settings.InstanceLabel, wrong[0])
		}
	}
	var err error
	settings.GlobalProjects, err = kube.GlobalProjects(data["globalProjects"])
	return settings, err
}
