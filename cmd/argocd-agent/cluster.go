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

// clusterSettings select the cluster and the namespace of Argo CD.
type clusterSettings struct {
	kubeconfig string
	context    string
	namespace  string
}

func (s *clusterSettings) declare(f *flags) {
	f.add("namespace", text(&s.namespace, "NAMESPACE", ""), "Namespace of Argo CD.").
		defaultText("the namespace of this pod or of the kubeconfig context, otherwise argocd")
	f.add("kubeconfig", text(&s.kubeconfig, "FILE", ""), "Kubeconfig of the cluster.").
		defaultText("the kubeconfig that kubectl uses, otherwise the ServiceAccount of this pod")
	f.add("kubecontext", text(&s.context, "CONTEXT", ""), "Context in the kubeconfig.").defaultText("the current context")
}

func (s *clusterSettings) check(f *flags) {
	if s.namespace != "" {
		f.failIf("namespace", dnsName(s.namespace, validation.IsDNS1123Label))
	}
}

const (
	defaultNamespace = "argocd"
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// connect returns the client configuration of the cluster and the namespace of Argo CD.
func (s *clusterSettings) connect() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context})
	cfg, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("find the cluster: no kubeconfig found, and this is not a pod: set --kubeconfig")
	case err != nil:
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	cfg.UserAgent = "argocd-agent/" + thisBuild().Version
	cfg.QPS = -1 // the API server is responsible for fairness among clients
	if s.namespace != "" {
		return cfg, s.namespace, nil
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("find the namespace of Argo CD: %w", err)
	}
	return cfg, s.impliedNamespace(raw, podNamespaceFile), nil
}

// impliedNamespace returns the namespace of the context, otherwise that of the pod.
func (s *clusterSettings) impliedNamespace(raw clientcmdapi.Config, podFile string) string {
	name := raw.CurrentContext
	if s.context != "" {
		name = s.context
	}
	namespace := ""
	if context := raw.Contexts[name]; context != nil {
		namespace = context.Namespace
	} else if content, err := os.ReadFile(podFile); err == nil {
		namespace = strings.TrimSpace(string(content))
	}
	if namespace == "" {
		return defaultNamespace
	}
	return namespace
}
