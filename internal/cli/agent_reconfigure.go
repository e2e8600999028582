package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) agentReconfigureCommand() *cobra.Command {
	var options agentOptions
	var removed removals
	var spec map[string]any
	var force, reissue bool
	cmd := &cobra.Command{
		Use:   "reconfigure AGENT",
		Short: "Change the registration of an agent",
		Long: `Changes the spec of an Agent. Fields that you do not set keep their value. To remove labels and annotations of the
cluster Secret, use --remove-label and --remove-annotation. If the Agent is declared in Git, change it there.

With another --mode, the other side becomes the owner of the Applications and overwrites what is different. So the mode
changes only if the agent is connected and in sync, unless you set --force. The agent is then suspended: set its
--agent-mode on the workload cluster and resume it.`,
		Example: `  argocd-agentctl agent reconfigure w1 --label tier=gold --remove-label env
  argocd-agentctl agent reconfigure w1 --shared
  argocd-agentctl agent reconfigure w1 --mode autonomous`,
		PreRunE: func(*cobra.Command, []string) (err error) {
			if reissue {
				return cmdline.UsageErrorf("--reissue-client-cert is not possible: %s", ownAccess)
			}
			spec, err = options.patch(removed)
			return err
		},
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			suspends, err := a.suspendForMode(ctx, args[0], spec, force)
			if err != nil {
				return err
			}
			agent, err := a.patch(ctx, "change agent "+args[0], args[0], map[string]any{"spec": spec})
			if err != nil {
				return err
			}
			p.say("%s changed", nameOf(agent))
			if suspends {
				p.say("It is suspended. On the workload cluster, set --agent-mode=%[2]s. Then run `argocd-agentctl agent resume %[1]s`.", agent.Name, agent.Spec.Mode)
			}
			return nil
		}),
	}
	options.addFlags(cmd)
	cmd.Flags().StringSliceVar(&removed.labels, "remove-label", nil, "Labels to remove from the cluster Secret, by `KEY,…`.")
	cmd.Flags().StringSliceVar(&removed.annotations, "remove-annotation", nil, "Annotations to remove from the cluster Secret, by `KEY,…`.")
	cmd.Flags().BoolVar(&force, "force", false, "Change the mode although the agent is not in sync. Changes that are not replicated yet are lost.")
	cmd.Flags().BoolVar(&reissue, "reissue-client-cert", false, "")
	hide(cmd.Flags(), "reissue-client-cert")
	return p.withIgnored(cmd, ownAccess, append([]string{"resource-proxy-server", "resource-proxy-username", "resource-proxy-password", "days"}, keyFlags...)...)
}

// suspendForMode suspends an agent whose mode the patch changes, and reports whether it does. It refuses a new mode while
// one side has changes that the other one lacks, unless force is set.
func (a agents) suspendForMode(ctx context.Context, name string, patch map[string]any, force bool) (bool, error) {
	mode, ok := patch["mode"].(string)
	if !ok {
		return false, nil
	}
	agent, err := a.get(ctx, name)
	if err != nil {
		return false, err
	}
	if agent.Spec.Mode == mode || agent.Spec.Mode == "" {
		return false, nil
	}
	if err := checkModeChange(agent); err != nil && !force {
		return false, err
	}
	patch["suspended"] = true
	_, err = a.patch(ctx, "suspend agent "+name, name, map[string]any{"spec": map[string]any{"suspended": true}})
	return true, err
}

func checkModeChange(agent *v1alpha1.Agent) error {
	s := agent.Status
	var why string
	switch {
	case s.ClusterUID == "": // it never connected: there is nothing to overwrite
		return nil
	case agent.Spec.ChildApplications == v1alpha1.ChildApplicationsReadOnly:
		return fmt.Errorf("change the mode of agent %s: the hub shows child Applications of the agent. Run "+
			"`argocd-agentctl agent reconfigure %s --child-applications None` and wait until they are gone", agent.Name, agent.Name)
	case !s.Connected:
		why = "it is not connected"
	case s.Diverged > 0:
		why = pluralize(int(s.Diverged), "item") + " differ between hub and cluster"
	case s.OldestUnacked != nil:
		why = "a change is not acknowledged yet"
	case s.LastConfirmed == nil:
		why = "it was not in sync in this session"
	default:
		return nil
	}
	return fmt.Errorf("change the mode of agent %s: %s, and the new owner would overwrite changes of the other side. "+
		"Wait until the agent is in sync, see `argocd-agentctl pending %s`. To change the mode anyway, use --force", agent.Name, why, agent.Name)
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
		"kinds": {"kinds", o.spec.Kinds}, "child-applications": {"childApplications", o.spec.ChildApplications}, "allow": {"allow", o.spec.Allow}, "owners": {"owners", o.spec.Owners}, "shared": {"shared", o.spec.Shared}, "suspended": {"suspended", o.spec.Suspended},
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
