package cli

import (
	"github.com/spf13/cobra"
)

func (p *Program) agentReconfigureCommand() *cobra.Command {
	var wish agentOptions
	var removed removals
	cmd := &cobra.Command{
		Use:   "reconfigure AGENT",
		Short: "Change what is registered for an agent",
		Long: `Changes an agent's registration. What is not said stays as it is; labels and annotations of its cluster Secret
are taken off with --remove-label and --remove-annotation. Where agents are declared in Git, change it there instead.`,
		Example: `  argocd-agentctl agent reconfigure w1 --label tier=gold --remove-label env
  argocd-agentctl agent reconfigure w1 --shared`,
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := wish.change(removed)
			if err != nil {
				return err
			}
			a, err := p.agents()
			if err != nil {
				return err
			}
			agent, err := a.patch(cmd.Context(), "change agent "+args[0], args[0], map[string]any{"spec": spec})
			if err != nil {
				return err
			}
			p.say("%s changed", nameOf(agent))
			return nil
		},
	}
	wish.addFlags(cmd)
	cmd.Flags().StringSliceVar(&removed.labels, "remove-label", nil, "Labels to take off its cluster Secret, by their `KEY,…`.")
	cmd.Flags().StringSliceVar(&removed.annotations, "remove-annotation", nil, "Annotations to take off it, likewise by `KEY,…`.")
	return cmd
}

// removals are what goes from a cluster Secret, by its key.
type removals struct{ labels, annotations []string }

// change is the wish as a patch of a spec: only what was said.
func (w *agentOptions) change(removed removals) (map[string]any, error) {
	if _, err := w.spec(); err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for flag, set := range map[string]func(){
		"mode":          func() { spec["mode"] = w.mode },
		"hub-namespace": func() { spec["namespace"] = w.namespace },
		"mapping":       func() { spec["mapping"] = w.mapping },
		"kinds":         func() { spec["kinds"] = w.kinds },
		"shared":        func() { spec["shared"] = w.shared },
		"suspended":     func() { spec["suspended"] = w.suspended },
	} {
		if w.cmd.Flags().Changed(flag) {
			set()
		}
	}
	cluster := map[string]any{}
	for _, of := range []struct {
		name    string
		removed []string
		set     map[string]string
	}{{"labels", removed.labels, w.labels}, {"annotations", removed.annotations, w.annotations}} {
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
		return nil, usageErrorf("there is nothing to change: say what, such as --label env=prod")
	}
	return spec, nil
}
