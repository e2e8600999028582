package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is one side: an API server, and Argo CD's namespace there.
type cluster struct {
	role      string // hub or workload cluster
	flag      string // that chooses its context
	context   string // empty: not from a kubeconfig
	namespace string
	config    *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
}

const usualNamespace = "argocd"

// hub leads to the hub.
func (p *Program) hub() (*cluster, error) {
	return p.connect("hub", "principal", p.global.principalContext, p.global.principalNamespace)
}

// spoke leads to the workload cluster.
func (p *Program) spoke() (*cluster, error) {
	return p.connect("workload cluster", "agent", p.global.agentContext, p.global.agentNamespace)
}

// bothSides leads to the two, which have to be told apart.
func (p *Program) bothSides() (hub, spoke *cluster, err error) {
	if p.global.agentContext == "" {
		return nil, nil, usageErrorf("--agent-context is missing: this command looks at both sides, and has to know which context leads to the workload cluster")
	}
	if hub, err = p.hub(); err != nil {
		return nil, nil, err
	}
	spoke, err = p.spoke()
	return hub, spoke, err
}

// requestTimeout bounds every request that does not stream.
const requestTimeout = 30 * time.Second

func (p *Program) connect(role, flag, wantContext, namespace string) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := p.getenv("KUBECONFIG"); files != "" {
		rules.Precedence = splitPaths(files)
	}
	rules.ExplicitPath = p.global.kubeconfig
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: wantContext}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	name := cmp.Or(wantContext, raw.CurrentContext)
	if _, ok := raw.Contexts[name]; !ok && wantContext != "" {
		return nil, usageErrorf("the kubeconfig has no context %q: `kubectl config get-contexts` lists them; see --%s-context and --kubeconfig", wantContext, flag)
	}
	cfg, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, usageErrorf("there is no kubeconfig that leads to the %s: give --kubeconfig and --%s-context, or set KUBECONFIG", role, flag)
	case err != nil:
		return nil, fmt.Errorf("find the %s: %w", role, err)
	}
	cfg.UserAgent = "argocd-agentctl/" + p.build().Version
	cfg.QPS, cfg.Burst = -1, -1 // fairness among clients is the API server's job
	cfg.Timeout = requestTimeout
	cfg.WarningHandler = rest.NoWarnings{}
	c := &cluster{role: role, flag: flag, context: name, config: cfg}
	c.namespace = namespace
	if context := raw.Contexts[name]; context != nil {
		c.namespace = cmp.Or(namespace, context.Namespace)
	}
	c.namespace = cmp.Or(c.namespace, usualNamespace)
	if c.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("set up the connection to the %s: %w", role, err)
	}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("set up the connection to the %s: %w", role, err)
	}
	return c, nil
}

func (c *cluster) String() string { return where(c.role, c.context, c.namespace) }

// explain adds to an error of the API server what a person can do about it.
func (c *cluster) explain(err error) error {
	var network net.Error
	var outer *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not know you: %w; renew the credentials of the context, or choose another with --%s-context", c, err, c.flag)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; ask for this right in %s, or choose another context with --%s-context", err, c, c.flag)
	case errors.As(err, &outer), errors.As(err, &network):
		return fmt.Errorf("cannot reach %s: %w; is it the right context (--%s-context)?", c, err, c.flag)
	}
	return err
}
