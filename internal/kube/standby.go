package kube

import "github.com/argocd-agent/argocd-agent/internal/kind"

// StandbyWatches returns the watches of the kinds between an active hub and its standby. If there are namespaces,
// Applications are watched in these, each by itself. The core must have the same namespaces.
func StandbyWatches(argoNamespace, pkiNamespace string, applicationNamespaces []string) []Watch {
	var out []Watch
	for _, w := range kind.Watches(kind.StandbyKinds()) {
		namespaces := []string{argoNamespace}
		switch {
		case w.AnyNamespace && len(applicationNamespaces) == 0:
			namespaces = []string{""}
		case w.AnyNamespace:
			namespaces = applicationNamespaces
		case w.Resource == kind.Secrets && pkiNamespace != argoNamespace:
			namespaces = append(namespaces, pkiNamespace)
		}
		for _, namespace := range namespaces {
			part := len(namespaces) > 1 || w.AnyNamespace && len(applicationNamespaces) > 0
			out = append(out, Watch{Resource: w.Resource, Namespace: namespace, Part: part})
		}
	}
	return out
}
