package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// joinOptions is what somebody says about a cluster that joins.
type joinOptions struct {
	token    pki.Token
	line     string
	mode     string
	image    string
	settings map[string]string
	manifest bool
	replace  bool
	socket   bool
	wait     bool
	timeout  time.Duration
	install  install.Agent
}

func (p *Program) joinCommand() *cobra.Command {
	var j joinOptions
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Join this cluster to a hub: install the agent and wait until it is connected",
		Long: `Joins a workload cluster to a hub, with a token that ` + "`argocd-agentctl agent join-token`" + ` has printed there:

  1. a key is made here and the hub signs a certificate for it; whoever answers in the hub's stead is found out by
     the CA's pin in the token
  2. the agent is installed beside Argo CD
  3. it is waited for until the agent is connected

If the hub cannot be reached from here, but from the cluster, say --mode: the agent then does the first step itself.
With --manifest everything is printed instead, for kubectl or Git: the agent joins when it is applied.`,
		Example: `  argocd-agentctl join join://hub.example.com:443/w1/…
  argocd-agentctl join join://hub.example.com:443/w1/… --agent-context w1 --live-exec
  argocd-agentctl join join://hub.example.com:443/w1/… --manifest --mode managed | kubectl apply -f -`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if j.token, err = pki.ParseToken(args[0]); err != nil {
				return usageError{err}
			}
			j.line = j.token.String()
			if j.manifest {
				return p.printJoin(&j)
			}
			spoke, err := p.spoke()
			if err != nil {
				return err
			}
			return p.join(cmd.Context(), spoke, &j)
		},
	}
	f := cmd.Flags()
	f.Var(choice(&j.mode, "", string(kind.Managed), string(kind.Autonomous)), "mode", "The agent's mode, where the hub cannot be asked: with --manifest, or if it is not reached from here.")
	f.BoolVar(&j.manifest, "manifest", false, "Print what would be installed, token and all, and do nothing.")
	f.BoolVar(&j.replace, "replace", false, "Join again a cluster that has a certificate already.")
	f.StringVar(&j.image, "image", "", "`IMAGE` of the agent. Without it, that of this version.")
	f.StringToStringVar(&j.settings, "set", nil, "Settings of the agent by their variables, such as ARGOCD_AGENT_LOG_LEVEL=debug.")
	f.BoolVar(&j.install.AllNamespaces, "all-namespaces", false, "Applications may be outside of Argo CD's namespace: for destination mapping, and some autonomous clusters.")
	f.BoolVar(&j.install.Exec, "live-exec", false, "Let the hub open terminals in pods.")
	f.BoolVar(&j.install.Secrets, "live-secrets", false, "Let the hub look at Secrets; their data is hidden as Argo CD does.")
	f.BoolVar(&j.install.NoRead, "no-live-read", false, "Do not let the hub look at objects and logs.")
	f.BoolVar(&j.install.NoWrite, "no-live-write", false, "Do not let the hub change objects directly.")
	f.BoolVar(&j.socket, "websocket", false, "Connect inside a WebSocket, where only HTTP/1.1 gets through to the hub. The principal has to have --enable-websocket.")
	f.BoolVar(&j.wait, "wait", true, "Wait until the agent is connected.")
	f.DurationVar(&j.timeout, "timeout", 5*time.Minute, "How long to wait.")
	return cmd
}

// manifests of the agent for a token.
func (j *joinOptions) manifests(namespace string) ([]byte, error) {
	host, port, err := net.SplitHostPort(j.token.Address)
	if err != nil {
		return nil, fmt.Errorf("the token's address: %w", err)
	}
	agent := j.install
	agent.Namespace, agent.Image = namespace, j.image
	agent.Settings = map[string]string{"ARGOCD_AGENT_REMOTE_SERVER": host, "ARGOCD_AGENT_REMOTE_PORT": port, "ARGOCD_AGENT_MODE": j.mode}
	if j.socket {
		agent.Settings["ARGOCD_AGENT_ENABLE_WEBSOCKET"] = "true"
	}
	maps.Copy(agent.Settings, j.settings)
	return agent.Manifests()
}

// printJoin prints what joins a cluster when it is applied.
func (p *Program) printJoin(j *joinOptions) error {
	if j.mode == "" {
		return usageErrorf("--mode is missing: with --manifest the hub is not asked; say what the token was made for, managed or autonomous")
	}
	namespace := cmp.Or(p.global.agentNamespace, usualNamespace)
	text, err := j.manifests(namespace)
	if err != nil {
		return err
	}
	secret, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata":   map[string]any{"name": pki.JoinSecret, "namespace": namespace, "labels": map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}},
		"stringData": map[string]string{enroll.TokenKey: j.line}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Stdout, "%s---\n%s", text, secret)
	return err
}

// join does it all, and tells how far it has come.
func (p *Program) join(ctx context.Context, spoke *cluster, j *joinOptions) error {
	began := p.Now()
	step := func(format string, args ...any) {
		fmt.Fprintf(p.Stderr, "%5.1fs  %s\n", p.Now().Sub(began).Seconds(), printable(fmt.Sprintf(format, args...)))
	}
	if _, err := spoke.kube.Discovery().ServerResourcesForGroupVersion("argoproj.io/v1alpha1"); err != nil {
		return fmt.Errorf("look for Argo CD: %s does not know its resources (%w): install Argo CD first, or choose another --agent-context", spoke, spoke.explain(err))
	}
	if err := p.enrol(ctx, spoke, j, step); err != nil {
		return err
	}
	text, err := j.manifests(spoke.namespace)
	if err != nil {
		return err
	}
	n, err := spoke.apply(ctx, text)
	if err != nil {
		return fmt.Errorf("install the agent: %w", err)
	}
	step("agent installed: %d objects in %s", n, spoke)
	if !j.wait {
		return nil
	}
	step("waiting for the agent to connect to %s", j.token.Address)
	if err := spoke.connected(ctx, j.timeout, step); err != nil {
		return err
	}
	step("agent %s is connected", j.token.Agent)
	return nil
}

// enrol gets a certificate for the cluster, or leaves that to the agent.
func (p *Program) enrol(ctx context.Context, spoke *cluster, j *joinOptions, step func(string, ...any)) error {
	there, err := secrets{spoke}.Get(ctx, pki.ClientSecret)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", pki.ClientSecret, err)
	}
	if there != nil && !j.replace {
		return fmt.Errorf("this cluster has a certificate already, in Secret %s of %s: add --replace to join again", pki.ClientSecret, spoke)
	}
	way := enroll.ClusterJoin{Secrets: secrets{spoke}, Now: p.Now,
		Join: grpc.JoinWith(grpc.ClientConfig{Proxy: p.proxy(), WebSocket: j.socket, Explain: identity.ExplainClient}, p.Now)}
	if err := way.PutToken(ctx, j.line); err != nil {
		return fmt.Errorf("keep the token: %w", err)
	}
	step("asking the hub at %s for a certificate", j.token.Address)
	answer, err := way.Do(ctx)
	switch {
	case err == nil:
		if j.mode != "" && j.mode != answer.Mode {
			p.warn("the token is for mode %s, not %s: %s it is", answer.Mode, j.mode, answer.Mode)
		}
		j.mode = answer.Mode
		step("certificate for agent %s received, mode %s", j.token.Agent, j.mode)
		return nil
	case !isUnreachable(err): // the hub, or whoever answers for it, was asked
		return fmt.Errorf("join the hub: %w", err)
	case j.mode == "":
		return fmt.Errorf("join the hub: %w; if the cluster itself can reach the hub, say --mode managed or autonomous, and its agent will join by itself", err)
	}
	if there != nil { // else the agent goes on using it
		if _, err := (secrets{spoke}).Delete(ctx, there); err != nil {
			return fmt.Errorf("delete Secret %s: %w", pki.ClientSecret, err)
		}
	}
	step("not from here: %v", err)
	step("the agent will get its certificate itself")
	return nil
}

// isUnreachable tells that nobody was there to ask.
func isUnreachable(err error) bool {
	if told, ok := errors.AsType[*enroll.Error](err); ok {
		return told.Temporary
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial" || errors.Is(err, context.DeadlineExceeded)
}

// proxy finds the way to the hub from here.
func (p *Program) proxy() func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		found, _ := proxyFor(p.Env, &settings{}, r.URL.Host)
		return found, nil
	}
}

// connected waits until the agent is ready, which it is while it is connected.
func (c *cluster) connected(ctx context.Context, timeout time.Duration, step func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said := ""
	for {
		d, err := c.kube.AppsV1().Deployments(c.namespace).Get(ctx, agentDeployment, metav1.GetOptions{})
		if err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.ReadyReplicas > 0 {
			return nil
		}
		if why := c.whyNotReady(ctx); why != said && why != "" {
			said = why
			step("%s", why)
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
				return cause
			}
			return fmt.Errorf("the agent is installed, but is not connected after %s: %s; look at `kubectl -n %s logs deployment/%s`, and try `argocd-agentctl validate agent`",
				timeout, cmp.Or(said, "it does not say why"), c.namespace, agentDeployment)
		case <-time.After(300 * time.Millisecond):
		}
	}
}
