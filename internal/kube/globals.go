package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// GlobalProjects parses globalProjects of ConfigMap argocd-cm: the AppProjects that others inherit from. It is in this
// package because it parses YAML.
func GlobalProjects(text string) ([]kind.GlobalProject, error) {
	var entries []struct {
		ProjectName   string               `json:"projectName"`
		LabelSelector metav1.LabelSelector `json:"labelSelector"`
	}
	if err := yaml.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("globalProjects: %w", err)
	}
	var all []kind.GlobalProject
	for _, one := range entries {
		selector, err := metav1.LabelSelectorAsSelector(&one.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("globalProjects: %s: %w", one.ProjectName, err)
		}
		all = append(all, kind.GlobalProject{Name: one.ProjectName, Selector: kind.LabelSelector{Selector: selector}})
	}
	return all, nil
}
