package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) agentReconfigureCommand() *cobra.Command {
	var options agentOptions
	var removed removals
	var spec map[string]any
	cmd := &cobra.Command{
		Use:   "reconfigure AGENT",
		Short: "Change the registration of an agent",
		Long: `Changes the spec of an Agent. Fields that you do not set keep their value. To remove labels and annotations of the
cluster Secret, use --remove-label and --remove-annotation. If the Agent is declared in Git, change it there.`,
		Example: `  argocd-agentctl agent reconfigure w1 --label tier=gold --remove-label env
  argocd-agentctl agent reconfigure w1 --shared`,
		PreRunE: func(*cobra.Command, []string) (err error) {
			spec, err = options.patch(removed)
			return err
		},
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			agent, err := a.patch(ctx, "change agent "+args[0], args[0], map[string]any{"spec": spec})
			if err != nil {
				return err
			}
			p.say("%s changed", nameOf(agent))
			return nil
		}),
	}
	options.addFlags(cmd)
	cmd.Flags().StringSliceVar(&removed.labels, "remove-label", nil, "Labels to remove from the cluster Secret, by `KEY,…`.")
	cmd.Flags().StringSliceVar(&removed.annotations, "remove-annotation", nil, "Annotations to remove from the cluster Secret, by `KEY,…`.")
	return cmd
}

// removals are keys to remove from a cluster Secret.
type removals struct{ labels, annotations []string }

// patch returns a merge patch for a spec with the flags that were set.
func (o *agentOptions) patch(removed removals) (map[string]any, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for flag, field := range map[string]struct {
		name  string
		value any
	}{
		"mode": {"mode", o.spec.Mode}, "hub-namespace": {"namespace", o.spec.Namespace}, "mapping": {"mapping", o.spec.Mapping},
		"kinds": {"kinds", o.spec.Kinds}, "allow": {"allow", o.spec.Allow}, "owners": {"owners", o.spec.Owners}, "shared": {"shared", o.spec.Shared}, "suspended": {"suspended", o.spec.Suspended},
	} {
		if o.cmd.Flags().Changed(flag) {
			spec[field.name] = field.value
		}
	}
	cluster := map[string]any{}
	for _, of := range []struct {
		name    string
		removed []string
		set     map[string]string
	}{{"labels", removed.labels, o.spec.Cluster.Labels}, {"annotations", removed.annotations, o.spec.Cluster.Annotations}} {
		pairs := map[string]any{}
		for _, key := range of.removed {
			pairs[key] = nil
		}
		for key, value := range of.set {
			pairs[key] = value
		}
		if len(pairs) > 0 {
			cluster[of.name] = pairs
		}
	}
	if len(cluster) > 0 {
		spec["cluster"] = cluster
	}
	if len(spec) == 0 {
		return nil, cmdline.UsageErrorf("nothing to change: set a flag, for example --label env=prod")
	}
	return spec, nil
}
