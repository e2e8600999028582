package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// joinToken is a token, for scripts.
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
	var mode, address, format string
	var labels map[string]string
	var life time.Duration
	var withdraw bool
	cmd := &cobra.Command{
		Use:   "join-token AGENT",
		Short: "Make a token with which a cluster joins, in one command there",
		Long: `Makes a token and prints the command to run on the workload cluster: it installs the agent there, gets a
certificate for it, and waits until it is connected. No key is copied, and no other access is needed.

A token is good for one cluster, once, and for a limited time. It names the hub's address and pins its CA, so that
whoever answers there in its stead is found out. If the principal runs an image of your own, the command names it.`,
		Example: `  argocd-agentctl agent join-token w1 --mode managed --label env=prod
  argocd-agentctl agent join-token w1 --mode managed --address hub.example.com:443 --life 24h
  argocd-agentctl agent join-token w1 --withdraw      # tokens that are out are good no longer`,
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := checkName(name); err != nil {
				return err
			}
			wish := agentOptions{labels: labels}
			if _, err := wish.spec(); err != nil {
				return err
			}
			h, hub, err := p.authority()
			if err != nil {
				return err
			}
			if withdraw {
				n, err := h.DeleteTokens(cmd.Context(), name)
				if err == nil {
					p.say("%s of %s withdrawn", pluralize(n, "token"), name)
				}
				return err
			}
			who := pki.JoinGrant{Agent: name, Mode: mode, Labels: labels}
			if who.Mode, err = hub.modeFor(cmd.Context(), name, mode); err != nil {
				return err
			}
			if address, err = hub.principalAddress(cmd.Context(), address); err != nil {
				return err
			}
			token, err := h.CreateToken(cmd.Context(), address, who, life)
			if err != nil {
				return fmt.Errorf("make a token for %s: %w", name, err)
			}
			p.warnOfName(cmd.Context(), hub, token.Host())
			made := joinToken{Agent: name, Mode: who.Mode, Labels: labels, Address: address, Expires: p.Now().Add(life).UTC(),
				Token: token.String(), Command: "argocd-agentctl join " + token.String() + hub.ownImage(cmd.Context())}
			return p.show(format, view{object: made, names: []string{made.Token}, text: made.Command + "\n"})
		},
	}
	f := cmd.Flags()
	f.Var(choice(&mode, "", string(kind.Managed), string(kind.Autonomous)), "mode",
		"Where Applications are written: on the hub (managed) or on the cluster (autonomous). Without it, what is registered for the agent.")
	f.StringToStringVarP(&labels, "label", "l", nil, "Labels of its cluster Secret, for the cluster generators of ApplicationSets.")
	f.StringVar(&address, "address", "", "`HOST:PORT` of the principal as the cluster reaches it. Without it, that of Service "+principalService+", if a load balancer has given it one.")
	f.DurationVar(&life, "life", pki.TokenLifetime, "How long the token is good.")
	f.BoolVar(&withdraw, "withdraw", false, "Make none; delete those that there are for the agent.")
	outputFlag(cmd, &format)
	return cmd
}

const principalService = "argocd-agent-principal"

// modeFor is an agent's mode: what is registered, or what was said.
func (c *cluster) modeFor(ctx context.Context, name, said string) (string, error) {
	registered := ""
	agent, err := c.dynamic.Resource(agentResource).Namespace(c.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		known, err := typed(agent)
		if err != nil {
			return "", err
		}
		registered = known.Spec.Mode
	case !notFound(err):
		return "", agents{c}.failed("look up agent "+name, name, err)
	}
	switch {
	case registered != "" && said != "" && registered != said:
		return "", usageErrorf("--mode %s contradicts what is registered: agent %s is %s; leave --mode out", said, name, registered)
	case registered == "" && said == "":
		return "", usageErrorf("--mode is missing: say managed or autonomous")
	}
	return cmp.Or(said, registered), nil
}

// principalAddress is where agents reach the hub.
func (c *cluster) principalAddress(ctx context.Context, given string) (string, error) {
	if given != "" {
		if !strings.Contains(given, ":") {
			given += ":443"
		}
		return given, nil
	}
	service, err := c.kube.CoreV1().Services(c.namespace).Get(ctx, principalService, metav1.GetOptions{})
	if err != nil && !notFound(err) {
		return "", fmt.Errorf("find the principal's address: %w", c.explain(err))
	}
	if err == nil && len(service.Spec.Ports) > 0 {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			return net.JoinHostPort(cmp.Or(ingress.Hostname, ingress.IP), strconv.Itoa(int(service.Spec.Ports[0].Port))), nil
		}
	}
	return "", usageErrorf("the principal's address is not known, because Service %s of %s has no load balancer: say with --address host:port how clusters reach it", principalService, c)
}

// ownImage is the flag with which agents get the image that the principal has, where that is not the usual one: a hub that
// pulls from a registry of its own most likely has clusters that do. Whoever may not look gets the command without it.
func (c *cluster) ownImage(ctx context.Context) string {
	image, err := c.argoImage(ctx, principalDeployment)
	if err != nil || image == "" || image == install.DefaultImage() {
		return ""
	}
	return " --image " + image
}

// warnOfName tells when the principal's certificate is not for the host that agents are to dial.
func (p *Program) warnOfName(ctx context.Context, hub *cluster, host string) {
	found, err := certificatesOf(ctx, hub, pki.PrincipalSecret)
	if err != nil || len(found) == 0 || certifies(found[0].Names, host) {
		return
	}
	p.warn("the principal's certificate is for %s, not for %s: agents will refuse it; name it to the principal with --tls-server-names, or issue another with `argocd-agentctl pki issue principal --upsert`",
		strings.Join(found[0].Names, ", "), host)
}

// certifies reports whether names of a certificate cover a host.
func certifies(names []string, host string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if rest, ok := strings.CutPrefix(name, "*."); ok {
			_, domain, _ := strings.Cut(host, ".")
			return domain == rest
		}
		return strings.EqualFold(name, host)
	})
}
