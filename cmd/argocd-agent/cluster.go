package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterSettings say which cluster a program works in.
type clusterSettings struct {
	kubeconfig string
	context    string
	namespace  string
}

func (s *clusterSettings) declare(f *flags) {
	f.add("namespace", text(&s.namespace, "NAMESPACE", ""),
		"Namespace of Argo CD.")
	f.defaultText("namespace", "that of this pod or of the kubeconfig's context, else argocd")
	f.add("kubeconfig", text(&s.kubeconfig, "FILE", ""),
		"Kubeconfig of the cluster.")
	f.defaultText("kubeconfig", "what kubectl would use, else the service account of this pod")
	f.add("kubecontext", text(&s.context, "CONTEXT", ""),
		"Context in the kubeconfig.")
	f.defaultText("kubecontext", "the current one")
}

func (s *clusterSettings) check(f *flags, bad *validationErrors) {
	if s.namespace == "" {
		return
	}
	if wrong := validation.IsDNS1123Label(s.namespace); len(wrong) > 0 {
		bad.add("%s %q cannot be the name of a namespace: %s", f.name("namespace"), s.namespace, strings.Join(wrong, "; "))
	}
}

const (
	usualNamespace   = "argocd"
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// connect returns how to reach the cluster's API server, and Argo CD's
// namespace there.
func (s *clusterSettings) connect(version string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context})
	cfg, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("find the cluster: there is no kubeconfig, and this is not a pod: give --kubeconfig")
	case err != nil:
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	cfg.UserAgent = "argocd-agent/" + version
	cfg.QPS = -1 // fairness among clients is the API server's job
	if s.namespace != "" {
		return cfg, s.namespace, nil
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("find the namespace of Argo CD: %w", err)
	}
	return cfg, s.impliedNamespace(raw, podNamespaceFile), nil
}

// impliedNamespace is where we are, if that is somewhere.
func (s *clusterSettings) impliedNamespace(raw clientcmdapi.Config, podFile string) string {
	name := raw.CurrentContext
	if s.context != "" {
		name = s.context
	}
	if context := raw.Contexts[name]; context != nil {
		if context.Namespace != "" {
			return context.Namespace
		}
		return usualNamespace
	}
	if content, err := os.ReadFile(podFile); err == nil && len(content) > 0 {
		return strings.TrimSpace(string(content))
	}
	return usualNamespace
}
