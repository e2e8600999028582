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
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// joinOptions are the token and the flags of join.
type joinOptions struct {
	token    pki.Token
	line     string
	mode     string
	image    string
	settings map[string]string
	manifest bool
	storage  bool // only store the token
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
		Short: "Install the agent and connect it to a hub",
		Long: `Connects a workload cluster to a hub with a token of ` + "`argocd-agentctl agent join-token`" + `:

  1. Create a key. The hub signs a certificate for it. The CA pin in the token proves the identity of the hub.
  2. Install the agent into the namespace of Argo CD.
  3. Wait until the agent is connected.

If only the workload cluster can reach the hub, set --mode. The agent then requests the certificate itself. With
--manifest, the command prints the manifests for kubectl or Git. The agent joins when they are applied. With
--token-only, the command stores the token in Secret ` + pki.JoinSecret + ` and installs nothing, for example
before you install the chart.`,
		Example: `  argocd-agentctl join join://hub.example.com:443/w1/…
  argocd-agentctl join join://hub.example.com:443/w1/… --agent-context w1 --live-exec
  argocd-agentctl join join://hub.example.com:443/w1/… --manifest --mode managed | kubectl apply -f -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if j.token, err = pki.ParseToken(args[0]); err != nil {
				return cmdline.UsageError(err)
			}
			j.line = j.token.String()
			if j.manifest {
				return p.printJoin(&j)
			}
			spoke, err := p.spoke()
			if err != nil {
				return err
			}
			if j.storage {
				return p.storeToken(cmd.Context(), spoke, &j)
			}
			return p.join(cmd.Context(), spoke, &j)
		},
	}
	f := cmd.Flags()
	f.Var(cmdline.Choice(&j.mode, "", string(kind.Managed), string(kind.Autonomous)), "mode", "Mode of the agent. Required with --manifest or if this machine cannot reach the hub.")
	f.BoolVar(&j.manifest, "manifest", false, "Print the manifests, including the token, and change nothing.")
	f.BoolVar(&j.storage, "token-only", false, "Only store the token in a Secret. An agent that is installed otherwise joins with it.")
	f.BoolVar(&j.replace, "replace", false, "Replace the existing certificate of the cluster.")
	f.StringVar(&j.image, "image", "", "`IMAGE` of the agent. If unset, the image of this version.")
	f.StringToStringVar(&j.settings, "set", nil, "Settings of the agent as environment variables, for example ARGOCD_AGENT_LOG_LEVEL=debug.")
	f.BoolVar(&j.install.AllNamespaces, "all-namespaces", false, "Allow Applications outside the Argo CD namespace, for destination mapping and some autonomous clusters.")
	f.BoolVar(&j.install.Exec, "live-exec", false, "Allow exec sessions from the hub.")
	f.BoolVar(&j.install.Secrets, "live-secrets", false, "Allow the hub to read Secrets. Argo CD hides their data.")
	f.BoolVar(&j.install.SelfUpgrade, "self-upgrade", false, "Let the hub upgrade the agent, if an AgentPolicy of the cluster allows it.")
	f.BoolVar(&j.install.NoRead, "no-live-read", false, "Do not allow the hub to read objects and logs.")
	f.BoolVar(&j.install.NoWrite, "no-live-write", false, "Do not allow the hub to change objects directly.")
	f.BoolVar(&j.socket, "websocket", false, "Connect with a WebSocket, for networks that allow only HTTP/1.1. The principal needs --enable-websocket.")
	f.BoolVar(&j.wait, "wait", true, "Wait until the agent is connected.")
	f.DurationVar(&j.timeout, "timeout", 5*time.Minute, "Timeout of --wait.")
	cmd.MarkFlagsMutuallyExclusive("manifest", "token-only")
	return cmd
}

func (j *joinOptions) manifests(namespace string) ([]byte, error) {
	hosts, port := j.token.Servers()
	agent := j.install
	agent.Namespace, agent.Image = namespace, j.image
	agent.Settings = map[string]string{"ARGOCD_AGENT_REMOTE_SERVER": strings.Join(hosts, ","), "ARGOCD_AGENT_REMOTE_PORT": port, "ARGOCD_AGENT_MODE": j.mode}
	if j.socket {
		agent.Settings["ARGOCD_AGENT_ENABLE_WEBSOCKET"] = "true"
	}
	maps.Copy(agent.Settings, j.settings)
	return agent.Manifests()
}

// printJoin prints the manifests of the agent and the token Secret.
func (p *Program) printJoin(j *joinOptions) error {
	if j.mode == "" {
		return cmdline.UsageErrorf("--mode is missing: --manifest does not contact the hub. Set the mode of the token, managed or autonomous")
	}
	namespace := cmp.Or(p.global.agentNamespace, defaultNamespace)
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

// storeToken stores the token in the cluster. An agent without a valid certificate joins with it.
func (p *Program) storeToken(ctx context.Context, spoke *cluster, j *joinOptions) error {
	if err := (enroll.ClusterJoin{Secrets: secrets{spoke}}).PutToken(ctx, j.line); err != nil {
		return fmt.Errorf("store the token: %w", err)
	}
	p.say("Stored the token for agent %s in Secret %s of %s. The agent joins with it.", j.token.Agent, pki.JoinSecret, spoke)
	return nil
}

// join installs the agent and reports progress on stderr.
func (p *Program) join(ctx context.Context, spoke *cluster, j *joinOptions) error {
	start := p.Now()
	step := func(format string, args ...any) {
		fmt.Fprintf(p.Stderr, "%5.1fs  %s\n", p.Now().Sub(start).Seconds(), printable(fmt.Sprintf(format, args...)))
	}
	if _, err := spoke.kube.Discovery().ServerResourcesForGroupVersion("argoproj.io/v1alpha1"); err != nil {
		return fmt.Errorf("CRDs of Argo CD not found in %s: %w; install Argo CD first, or set --agent-context", spoke, spoke.explain(err))
	}
	if err := p.enroll(ctx, spoke, j, step); err != nil {
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
	if err := spoke.waitConnected(ctx, j.timeout, step); err != nil {
		return err
	}
	step("agent %s is connected", j.token.Agent)
	return nil
}

// enroll gets a certificate from the hub. If this machine cannot reach the hub, the agent does it.
func (p *Program) enroll(ctx context.Context, spoke *cluster, j *joinOptions, step func(string, ...any)) error {
	existing, err := secrets{spoke}.Get(ctx, pki.ClientSecret)
	if err != nil {
		return fmt.Errorf("get Secret %s: %w", pki.ClientSecret, err)
	}
	if existing != nil && !j.replace {
		return fmt.Errorf("Secret %s of %s already has a certificate. To join again, set --replace", pki.ClientSecret, spoke)
	}
	enrollment := enroll.ClusterJoin{Secrets: secrets{spoke}, Now: p.Now,
		Join: grpc.JoinWith(grpc.ClientConfig{Proxy: p.proxy(), WebSocket: j.socket, Explain: identity.ExplainClient}, p.Now)}
	if err := enrollment.PutToken(ctx, j.line); err != nil {
		return fmt.Errorf("store the token: %w", err)
	}
	step("requesting a certificate from the hub at %s", j.token.Address)
	answer, err := enrollment.Do(ctx)
	switch {
	case err == nil:
		if j.mode != "" && j.mode != answer.Mode {
			p.warn("The token is for mode %s, not %s. Using %s.", answer.Mode, j.mode, answer.Mode)
		}
		j.mode = answer.Mode
		step("certificate for agent %s received, mode %s", j.token.Agent, j.mode)
		return nil
	case !isUnreachable(err):
		return fmt.Errorf("join the hub: %w", err)
	case j.mode == "":
		return fmt.Errorf("join the hub: %w; if the workload cluster can reach the hub, set --mode, and the agent requests the certificate itself", err)
	}
	if existing != nil { // the agent would continue to use it
		if _, err := (secrets{spoke}).Delete(ctx, existing); err != nil {
			return fmt.Errorf("delete Secret %s: %w", pki.ClientSecret, err)
		}
	}
	step("this machine cannot reach the hub: %v", err)
	step("the agent will request its certificate itself")
	return nil
}

// isUnreachable reports whether no server answered.
func isUnreachable(err error) bool {
	if refused, ok := errors.AsType[*enroll.Error](err); ok {
		return refused.Temporary
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial" || errors.Is(err, context.DeadlineExceeded)
}

// proxy returns the HTTPS proxy of this machine.
func (p *Program) proxy() func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		found, _ := proxyFor(p.Env, &settings{}, r.URL.Host)
		return found, nil
	}
}

// waitConnected waits until the agent is ready, which means that it is connected.
func (c *cluster) waitConnected(ctx context.Context, timeout time.Duration, step func(string, ...any)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		d, err := c.kube.AppsV1().Deployments(c.namespace).Get(ctx, agentDeployment, metav1.GetOptions{})
		if err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.ReadyReplicas > 0 {
			return true, nil
		}
		if reason := c.notReadyReason(ctx); reason != last && reason != "" {
			last = reason
			step("%s", reason)
		}
		return false, nil
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the user interrupted the command
		return ctx.Err()
	}
	return fmt.Errorf("the agent is installed, but not connected after %s: %s; run `kubectl -n %s logs deployment/%s` and `argocd-agentctl validate agent`",
		timeout, cmp.Or(last, "unknown reason"), c.namespace, agentDeployment)
}
