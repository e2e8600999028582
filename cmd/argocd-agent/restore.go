package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/upgrade"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *program) restoreCommand() *cobra.Command {
	var cluster clusterSettings
	var deployment, id string
	cmd := &cobra.Command{
		Use:   "restore-image",
		Short: "Restore the image of an agent after a failed upgrade",
		Long: `Waits until a new agent has confirmed its upgrade. If it does not do so in time, the command restores the old image.
The agent creates a Job with this command before it changes its image.`,
		Example: "  argocd-agent restore-image --deployment argocd-agent-agent --id 20260101-120000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if deployment == "" || id == "" {
				return cmdline.UsageErrorf("--deployment and --id are required")
			}
			config, namespace, err := cluster.connect()
			if err != nil {
				return err
			}
			client, err := kube.NewClient(config)
			if err != nil {
				return err
			}
			return upgrade.Restore(cmd.Context(), client, namespace, deployment, id, slog.New(slog.NewJSONHandler(p.stderr, nil)))
		},
	}
	cmd.Flags().StringVar(&cluster.namespace, "namespace", "", "Namespace of the Deployment. If unset, the namespace of this pod.")
	cmd.Flags().StringVar(&cluster.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. If unset, the ServiceAccount of this pod.")
	cmd.Flags().StringVar(&deployment, "deployment", "", "Deployment of the agent.")
	cmd.Flags().StringVar(&id, "id", "", "ID of the upgrade.")
	return cmd
}
