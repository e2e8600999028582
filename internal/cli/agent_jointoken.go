package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// joinToken is the JSON output of join-token.
type joinToken struct {
	Agent   string            `json:"agent"`
	Mode    string            `json:"mode"`
	Labels  map[string]string `json:"labels,omitempty"`
	Address string            `json:"address"`
	Expires time.Time         `json:"expires"`
	Token   string            `json:"token"`
	Command string            `json:"command"`
}

func (p *Program) agentJoinTokenCommand() *cobra.Command {
	var mode, address string
	var labels map[string]string
	var duration time.Duration
	var withdraw bool
	cmd := p.withOutput(&cobra.Command{
		Use:   "join-token AGENT",
		Short: "Create a join token for a workload cluster",
		Long: `Creates a join token and prints the command to run on the workload cluster. That command installs the agent, gets
a certificate for it and waits until it is connected. It needs no other access to the hub.

A token is valid for one agent, for one use and for a limited time. It contains the address of the hub and the pin
of its CA, so that another server cannot impersonate the hub. If the principal runs a custom image, the command
uses the same image for the agent.`,
		Example: `  argocd-agentctl agent join-token w1 --mode managed --label env=prod
  argocd-agentctl agent join-token w1 --mode managed --address hub.example.com:443 --duration 24h
  argocd-agentctl agent join-token w1 --mode managed --address hub.example.com,standby.example.com
  argocd-agentctl agent join-token w1 --withdraw      # invalidate all tokens of w1`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			options := agentOptions{spec: v1alpha1.Spec{Cluster: v1alpha1.ClusterSecret{Labels: labels}}}
			return cmp.Or(checkName(args[0]), options.validate())
		},
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) (err error) {
			name, ca := args[0], p.pki(a.cluster)
			if withdraw {
				n, err := ca.DeleteTokens(ctx, name)
				if err == nil {
					p.say("%s of %s withdrawn", pluralize(n, "token"), name)
				}
				return err
			}
			grant := pki.JoinGrant{Agent: name, Labels: labels}
			if grant.Mode, err = a.modeFor(ctx, name, mode); err != nil {
				return err
			}
			if address, err = a.principalAddress(ctx, address); err != nil {
				return err
			}
			token, err := ca.CreateToken(ctx, address, grant, duration)
			if err != nil {
				return fmt.Errorf("create a token for %s: %w", name, err)
			}
			hosts, _ := token.Servers()
			p.warnPrincipalCertificate(ctx, a.cluster, hosts[0])
			created := joinToken{Agent: name, Mode: grant.Mode, Labels: labels, Address: address, Expires: p.Now().Add(duration).UTC(),
				Token: token.String(), Command: "argocd-agentctl join " + token.String() + a.imageFlag(ctx)}
			return p.show(view{object: created, names: []string{created.Token}, text: created.Command + "\n"})
		}),
	})
	f := cmd.Flags()
	f.Var(cmdline.Choice(&mode, "", string(kind.Managed), string(kind.Autonomous)), "mode",
		"Side that owns the Applications: the hub (managed) or the workload cluster (autonomous). If unset, the registered mode.")
	f.StringToStringVarP(&labels, "label", "l", nil, "Labels of the cluster Secret, for cluster generators of ApplicationSets.")
	f.StringVar(&address, "address", "", "`HOST:PORT` of the principal for the workload cluster, or several, separated by commas, the preferred one first. If unset, the load balancer address of Service "+principalService+".")
	f.DurationVar(&duration, "duration", pki.TokenLifetime, "Lifetime of the token.")
	f.BoolVar(&withdraw, "withdraw", false, "Do not create a token. Delete the existing tokens of the agent.")
	return cmd
}

const principalService = "argocd-agent-principal"

// modeFor returns the mode for a token: the flag, or the registered mode.
func (a agents) modeFor(ctx context.Context, name, flag string) (string, error) {
	registered := ""
	switch agent, err := a.in().Get(ctx, name, metav1.GetOptions{}); {
	case err == nil:
		known, err := typed(agent)
		if err != nil {
			return "", err
		}
		registered = known.Spec.Mode
	case !notFound(err):
		return "", a.failed("get agent "+name, name, err)
	}
	switch {
	case registered != "" && flag != "" && registered != flag:
		return "", cmdline.UsageErrorf("--mode %s: agent %s is registered as %s. Omit --mode", flag, name, registered)
	case registered == "" && flag == "":
		return "", cmdline.UsageErrorf("--mode is missing: set managed or autonomous")
	}
	return cmp.Or(flag, registered), nil
}

// principalAddress returns the address of the principal for agents: the flag, or the load balancer of the Service.
func (c *cluster) principalAddress(ctx context.Context, flag string) (string, error) {
	if flag != "" {
		addresses := strings.Split(flag, ",")
		for i, address := range addresses {
			if !strings.Contains(address, ":") {
				addresses[i] += ":443"
			}
		}
		return strings.Join(addresses, ","), nil
	}
	service, err := c.kube.CoreV1().Services(c.namespace).Get(ctx, principalService, metav1.GetOptions{})
	if err != nil && !notFound(err) {
		return "", fmt.Errorf("get Service %s: %w", principalService, c.explain(err))
	}
	if err == nil && len(service.Spec.Ports) > 0 {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			return net.JoinHostPort(cmp.Or(ingress.Hostname, ingress.IP), strconv.Itoa(int(service.Spec.Ports[0].Port))), nil
		}
	}
	return "", cmdline.UsageErrorf("the address of the principal is unknown: Service %s of %s has no load balancer. Set --address host:port", principalService, c)
}

// imageFlag returns the --image flag for the join command if the principal runs a custom image. A hub with its own
// registry usually has workload clusters that use it as well.
func (c *cluster) imageFlag(ctx context.Context) string {
	d, err := c.deployment(ctx, principalDeployment)
	if err != nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	image := d.Spec.Template.Spec.Containers[0].Image
	if image == install.DefaultImage() {
		return ""
	}
	return " --image " + image
}

// warnPrincipalCertificate warns if the principal's certificate is not valid for the host that agents connect to.
func (p *Program) warnPrincipalCertificate(ctx context.Context, hub *cluster, host string) {
	found, err := certificatesOf(ctx, hub, pki.PrincipalSecret)
	if err != nil || len(found) == 0 || found[0].leaf.VerifyHostname(host) == nil {
		return
	}
	p.warn("The certificate of the principal is valid for %s, not for %s. Agents will refuse it. Add the name to --tls-server-names of the principal, or run `argocd-agentctl pki issue principal --upsert`.",
		strings.Join(found[0].Names, ", "), host)
}
