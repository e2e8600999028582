package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) agentDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete AGENT…",
		Short: "Remove an agent: it is disconnected and its certificate revoked",
		Long: `Removes an agent from the hub: it is disconnected, its certificate is revoked, and its cluster Secret goes.
What it deployed on its cluster stays and goes on running. Applications that are being deleted and wait for
this cluster keep waiting: if it will never come back, retire it first.`,
		Example: `  argocd-agentctl agent delete w1
  argocd-agentctl agent delete w1 --yes     # in a script`,
		Args:              argCount(1, -1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			for _, name := range args { // all or none are asked about
				if _, err := a.get(cmd.Context(), name); err != nil {
					return err
				}
			}
			if err := p.askConfirmation(yes, fmt.Sprintf("remove %s from %s and revoke the certificate", strings.Join(args, ", "), a.cluster)); err != nil {
				return err
			}
			for _, name := range args {
				if err := a.in().Delete(cmd.Context(), name, metav1.DeleteOptions{}); err != nil {
					return a.failed("delete agent "+name, name, err)
				}
				if !a.gone(cmd.Context(), name) {
					p.say("agent.%s/%s is leaving: the principal revokes its certificate and removes what is derived from it, when it runs", v1alpha1.Group, name)
					continue
				}
				p.say("agent.%s/%s deleted", v1alpha1.Group, name)
			}
			return nil
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}

// goneWithin is how long a principal that runs has to let an agent go.
const goneWithin = 10 * time.Second

// gone waits until an agent that was deleted is gone. False: somebody still has something to do first.
func (a agents) gone(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	for {
		_, err := a.in().Get(ctx, name, metav1.GetOptions{})
		if notFound(err) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *Program) agentRetireCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "retire AGENT",
		Short: "Say that a cluster is gone for good, so that nothing waits for it",
		Long: `Says that an agent's cluster is gone for good. Applications of its that are being deleted wait until the
cluster has removed what they deployed; for a cluster that no longer exists that is forever. After this they
are let go. An agent that connects all the same is refused.

Remove it afterwards with ` + "`argocd-agentctl agent delete`" + `.`,
		Example:           "  argocd-agentctl agent retire w1 && argocd-agentctl agent delete w1",
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			agent, err := a.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if agent.Status.Connected {
				return fmt.Errorf("retire agent %s: it is connected, so its cluster is not gone; suspend it first, if it is to be given up all the same", agent.Name)
			}
			if err := p.askConfirmation(yes, fmt.Sprintf("give up the cluster of %s for good, and let go of what waits for it", agent.Name)); err != nil {
				return err
			}
			change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.RetireAnnotation: "true"}}}
			if _, err := a.patch(cmd.Context(), "retire agent "+agent.Name, agent.Name, change); err != nil {
				return err
			}
			p.say("%s retired", nameOf(agent))
			return nil
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}
