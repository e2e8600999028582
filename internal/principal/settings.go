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

// applySettings posts the settings of Argo CD to the reconciler. Invalid settings are logged and ignored.
func (p *principal) applySettings(ctx context.Context, o *kind.Object) {
	settings, err := readSettings(o)
	if err != nil {
		p.log.WarnContext(ctx, "Argo CD settings are invalid, keeping the last valid ones", "configmap", argoConfig, "error", err)
	} else if p.runner.Post(ctx, settings) != nil {
		return // ctx ended
	}
	select {
	case <-p.settingsRead:
	default:
		close(p.settingsRead)
	}
}

// readSettings reads the settings that concern agents. If o is nil, they are the defaults.
func readSettings(o *kind.Object) (reconcile.ArgoSettings, error) {
	var settings reconcile.ArgoSettings
	if o == nil {
		return settings, nil
	}
	data, _ := rawjson.StringMap(o.Get("data"))
	if settings.InstanceLabel = data["application.instanceLabelKey"]; settings.InstanceLabel != "" {
		if problems := validation.IsQualifiedName(settings.InstanceLabel); len(problems) > 0 {
			return settings, fmt.Errorf("application.instanceLabelKey %q: %s", settings.InstanceLabel, problems[0])
		}
	}
	var err error
	settings.GlobalProjects, err = kube.GlobalProjects(data["globalProjects"])
	return settings, err
}
