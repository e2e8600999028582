package principal

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// argoConfig is the ConfigMap with Argo CD's settings.
const argoConfig = "argocd-cm"

// followSettings tells the node what Argo CD is set to. What makes no sense is
// logged, and what was set before stays in force.
func (p *principal) followSettings(ctx context.Context) error {
	ref := kind.Ref{Resource: kind.ConfigMaps, Namespace: p.cfg.Namespace, Name: argoConfig}
	return kube.Follow(ctx, p.client, ref, p.log, p.cfg.Jitter, func(o *kind.Object) {
		settings, err := readSettings(o)
		if err != nil {
			p.log.WarnContext(ctx, "can not make sense of Argo CD's settings; what they were before stays in force", "configmap", argoConfig, "error", err)
		} else if p.host.Post(ctx, settings) != nil {
			return // at the end
		}
		select {
		case <-p.settled:
		default:
			close(p.settled) // by the one goroutine that follows
		}
	})
}

// globalProject is an entry of globalProjects in Argo CD's settings.
type globalProject struct {
	ProjectName   string               `json:"projectName"`
	LabelSelector metav1.LabelSelector `json:"labelSelector"`
}

// byLabels is a selector of Kubernetes' own.
type byLabels struct{ labels.Selector }

// Matches implements kind.Selector.
func (s byLabels) Matches(l map[string]string) bool { return s.Selector.Matches(labels.Set(l)) }

// readSettings reads what concerns agents; of nil, the defaults.
func readSettings(o *kind.Object) (node.ArgoSettings, error) {
	var settings node.ArgoSettings
	if o == nil {
		return settings, nil
	}
	data, _ := raw.StringMap(o.Get("data")) // none: an empty ConfigMap
	if settings.InstanceLabel = data["application.instanceLabelKey"]; settings.InstanceLabel != "" {
		if wrong := validation.IsQualifiedName(settings.InstanceLabel); len(wrong) > 0 {
			return settings, fmt.Errorf("application.instanceLabelKey %q: %s", settings.InstanceLabel, wrong[0])
		}
	}
	var globals []globalProject
	if err := yaml.Unmarshal([]byte(data["globalProjects"]), &globals); err != nil {
		return settings, fmt.Errorf("globalProjects: %w", err)
	}
	for _, g := range globals {
		selector, err := metav1.LabelSelectorAsSelector(&g.LabelSelector)
		if err != nil {
			return settings, fmt.Errorf("globalProjects: %s: %w", g.ProjectName, err)
		}
		settings.GlobalProjects = append(settings.GlobalProjects, kind.GlobalProject{Name: g.ProjectName, Selector: byLabels{selector}})
	}
	return settings, nil
}
