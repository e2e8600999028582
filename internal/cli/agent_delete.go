package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) agentDeleteCommand() *cobra.Command {
	return p.withYes(&cobra.Command{
		Use:   "delete AGENT…",
		Short: "Delete agents and revoke their certificates",
		Long: `Deletes agents from the hub. The principal disconnects the agent, revokes its certificate and deletes its cluster
Secret. Workloads on the workload cluster keep running. Applications that are being deleted still wait for the
cluster. If the cluster is permanently gone, run ` + "`argocd-agentctl agent retire`" + ` first.`,
		Example: `  argocd-agentctl agent delete w1
  argocd-agentctl agent delete w1 --yes     # in a script`,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			for _, name := range args { // before the first deletion
				if _, err := a.get(ctx, name); err != nil {
					return err
				}
			}
			if err := p.askConfirmation(fmt.Sprintf("delete %s from %s and revoke the certificate", strings.Join(args, ", "), a.cluster)); err != nil {
				return err
			}
			for _, name := range args {
				if err := a.in().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					return a.failed("delete agent "+name, name, err)
				}
				if !a.waitDeleted(ctx, name) {
					p.say("agent.%s/%s is terminating. The principal still has to revoke its certificate and delete its cluster Secret.", v1alpha1.Group, name)
					continue
				}
				p.say("agent.%s/%s deleted", v1alpha1.Group, name)
			}
			return nil
		}),
	})
}

// deletionTimeout is how long a running principal may take to remove the finalizer of an Agent.
const deletionTimeout = 10 * time.Second

// waitDeleted reports whether a deleted Agent disappears within deletionTimeout.
func (a agents) waitDeleted(ctx context.Context, name string) bool {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, deletionTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := a.in().Get(ctx, name, metav1.GetOptions{})
		return notFound(err), nil
	})
	return err == nil
}

func (p *Program) agentRetireCommand() *cobra.Command {
	return p.withYes(&cobra.Command{
		Use:   "retire AGENT",
		Short: "Mark a workload cluster as permanently gone",
		Long: `Marks a workload cluster as permanently gone. Applications that are being deleted wait until the cluster has
deleted its resources. After this command the principal removes their finalizers. An agent that connects from
the cluster is refused.

Then delete the agent with ` + "`argocd-agentctl agent delete`" + `.`,
		Example: "  argocd-agentctl agent retire w1 && argocd-agentctl agent delete w1",
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			agent, err := a.get(ctx, args[0])
			if err != nil {
				return err
			}
			if agent.Status.Connected {
				return fmt.Errorf("retire agent %s: the agent is connected. To retire it anyway, suspend it first", agent.Name)
			}
			if err := p.askConfirmation(fmt.Sprintf("mark the cluster of %s as permanently gone and remove the finalizers of its Applications", agent.Name)); err != nil {
				return err
			}
			if _, err := a.patch(ctx, "retire agent "+agent.Name, agent.Name, annotate(v1alpha1.RetireAnnotation, "true")); err != nil {
				return err
			}
			p.say("%s retired", nameOf(agent))
			return nil
		}),
	})
}
