package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent/argocd-agent/internal/kube"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// cluster is the API server and the Argo CD namespace of one side.
type cluster struct {
	role      string // hub or workload cluster
	flag      string // prefix of its flags
	context   string // if empty, not from a kubeconfig
	namespace string
	pki       string // namespace of CA and certificates; if empty, namespace
	config    *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	raw       *kube.Client // for Secrets and objects of Argo CD
}

const defaultNamespace = "argocd"

func (p *Program) hub() (*cluster, error) {
	hub, err := p.connect("hub", "principal", p.global.principalContext, p.global.principalNamespace)
	if err != nil {
		return nil, err
	}
	hub.pki = p.global.pkiNamespace
	return hub, nil
}

func (p *Program) spoke() (*cluster, error) {
	return p.connect("workload cluster", "agent", p.global.agentContext, p.global.agentNamespace)
}

func (p *Program) bothSides() (hub, spoke *cluster, err error) {
	if p.global.agentContext == "" {
		return nil, nil, cmdline.UsageErrorf("--agent-context is missing: set the context of the workload cluster")
	}
	if hub, err = p.hub(); err != nil {
		return nil, nil, err
	}
	spoke, err = p.spoke()
	return hub, spoke, err
}

// requestTimeout limits every request of client-go that does not stream. kube.Client has its own limit.
const requestTimeout = 30 * time.Second

// kubeconfigRules returns the loading rules for the kubeconfig of --kubeconfig or KUBECONFIG.
func (p *Program) kubeconfigRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := p.getenv("KUBECONFIG"); files != "" {
		rules.Precedence = filepath.SplitList(files)
	}
	rules.ExplicitPath = p.global.kubeconfig
	rules.WarnIfAllMissing = false
	return rules
}

func (p *Program) connect(role, flag, wantContext, namespace string) (*cluster, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: wantContext}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(p.kubeconfigRules(), overrides)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	name := cmp.Or(wantContext, raw.CurrentContext)
	if _, ok := raw.Contexts[name]; !ok && wantContext != "" {
		return nil, cmdline.UsageErrorf("the kubeconfig has no context %q: check --%s-context and --kubeconfig", wantContext, flag)
	}
	cfg, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, cmdline.UsageErrorf("no kubeconfig for the %s: set --kubeconfig and --%s-context, or KUBECONFIG", role, flag)
	case err != nil:
		return nil, fmt.Errorf("load the kubeconfig of the %s: %w", role, err)
	}
	cfg.UserAgent = "argocd-agentctl/" + p.build().Version
	cfg.QPS, cfg.Burst = -1, -1 // fairness among clients is the API server's job
	cfg.Timeout = requestTimeout
	cfg.WarningHandler = rest.NoWarnings{}
	c := &cluster{role: role, flag: flag, context: name, config: cfg, namespace: namespace}
	if context := raw.Contexts[name]; context != nil {
		c.namespace = cmp.Or(namespace, context.Namespace)
	}
	c.namespace = cmp.Or(c.namespace, defaultNamespace)
	if c.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("create client for the %s: %w", role, err)
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("create client for the %s: %w", role, err)
	}
	if c.raw, err = kube.NewClient(cfg); err != nil {
		return nil, fmt.Errorf("create client for the %s: %w", role, err)
	}
	return c, nil
}

func (c *cluster) String() string {
	return fmt.Sprintf("the %s (context %s, namespace %s)", c.role, cmp.Or(c.context, "current"), c.namespace)
}

// explain adds a remedy to an error of the API server.
func (c *cluster) explain(err error) error {
	var network net.Error
	var outer *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s rejects your credentials: %w; renew them or set --%s-context", c, err, c.flag)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; request this permission in %s, or set --%s-context", err, c, c.flag)
	case errors.As(err, &outer), errors.As(err, &network):
		return fmt.Errorf("cannot reach %s: %w; check --%s-context", c, err, c.flag)
	}
	return err
}

// notFound reports whether the API server answered that an object does not exist. A 404 without a Status may come from a
// proxy or a load balancer and does not count.
func notFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
