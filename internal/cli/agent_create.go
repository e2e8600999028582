package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// agentOptions are the flags that set the spec of an Agent.
type agentOptions struct {
	cmd  *cobra.Command
	spec v1alpha1.Spec
}

func (o *agentOptions) addFlags(cmd *cobra.Command) {
	o.cmd = cmd
	f, s := cmd.Flags(), &o.spec
	f.Var(cmdline.Choice(&s.Mode, "", string(kind.Managed), string(kind.Autonomous)), "mode",
		"Side that owns the Applications: the hub (managed) or the workload cluster (autonomous). An agent without a mode is refused.")
	f.StringToStringVarP(&s.Cluster.Labels, "label", "l", nil, "Labels of the cluster Secret, for cluster generators of ApplicationSets.")
	f.StringToStringVar(&s.Cluster.Annotations, "annotation", nil, "Annotations of the cluster Secret.")
	f.StringVar(&s.Namespace, "hub-namespace", "", "`NAMESPACE` of the agent on the hub. If unset, the name of the agent.")
	f.Var(cmdline.Choice(&s.Mapping, "", "namespace", "destination"), "mapping", "How Applications are assigned to the agent. If unset, the setting of the principal.")
	f.StringSliceVar(&s.Kinds, "kinds", nil, "Kinds to sync: "+strings.Join(agentKinds, ", ")+". If unset, all.")
	f.Var(cmdline.Choice(&s.ChildApplications, "", v1alpha1.ChildApplicationsNone, v1alpha1.ChildApplicationsReadOnly), "child-applications",
		"Whether the hub shows the Applications that managed Applications deploy on the cluster. If unset, None.")
	f.StringSliceVar(&s.Allow, "allow", nil, "What an autonomous agent can set on the hub: "+strings.Join(agentAllow, ", ")+". If unset, neither.")
	f.StringSliceVar(&s.Owners, "owners", nil, "Groups of the teams that own the cluster. They give no rights, see argocd-agentctl agent access.")
	f.BoolVar(&s.Shared, "shared", false, "Let the agent use the repo-server and Redis of the hub.")
	f.BoolVar(&s.Suspended, "suspended", false, "Refuse connections of the agent until it is resumed.")
}

var (
	agentKinds = kind.Names()
	agentAllow = []string{v1alpha1.AllowRoles, v1alpha1.AllowNotifications}
)

func (o *agentOptions) validate() error {
	for _, list := range []struct {
		flag          string
		given, values []string
	}{{"kinds", o.spec.Kinds, agentKinds}, {"allow", o.spec.Allow, agentAllow}} {
		for _, name := range list.given {
			if !slices.Contains(list.values, name) {
				return cmdline.UsageErrorf("--%s %q: must be one of %s", list.flag, name, strings.Join(list.values, ", "))
			}
		}
	}
	if name := o.spec.Namespace; name != "" {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return cmdline.UsageErrorf("--hub-namespace %q: %s", name, strings.Join(wrong, "; "))
		}
	}
	labels, annotations := o.spec.Cluster.Labels, o.spec.Cluster.Annotations
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(labels[key])...); len(wrong) > 0 {
			return cmdline.UsageErrorf("--label %s=%s: %s", key, labels[key], strings.Join(wrong, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
			return cmdline.UsageErrorf("--annotation %s: %s", key, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func (p *Program) agentCreateCommand() *cobra.Command {
	var options agentOptions
	var dry bool
	cmd := p.withOutput(&cobra.Command{
		Use:               "create AGENT",
		ValidArgsFunction: cobra.NoFileCompletions,
		Short:             "Register an agent before it first connects",
		Long: `Creates an Agent on the hub. The principal then creates the namespace and the cluster Secret of the agent.
An agent without an Agent is refused, unless the principal runs with --require-registration=false.

To let a workload cluster join in one step, use ` + "`argocd-agentctl agent join-token`" + `.`,
		Example: `  argocd-agentctl agent create w1 --mode managed --label env=prod,region=eu

  # Print the object for Git instead of creating it
  argocd-agentctl agent create w1 --mode managed --dry-run -o yaml`,
		PreRunE: func(_ *cobra.Command, args []string) error { return cmp.Or(checkName(args[0]), options.validate()) },
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			agent := &v1alpha1.Agent{
				TypeMeta:   metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind},
				ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: a.namespace}, Spec: options.spec,
			}
			if dry {
				object := map[string]any{"apiVersion": agent.APIVersion, "kind": agent.Kind,
					"metadata": map[string]any{"name": agent.Name, "namespace": agent.Namespace}, "spec": agent.Spec}
				return p.show(view{object: object, names: []string{nameOf(agent)}, text: nameOf(agent) + " would be created\n"})
			}
			agent, err := a.create(ctx, agent)
			if err != nil {
				return err
			}
			return p.show(view{object: agent, names: []string{nameOf(agent)}, text: nameOf(agent) + " created\n"})
		}),
	})
	options.addFlags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "Do not create the Agent. With -o yaml, print it.")
	for _, name := range []string{"resource-proxy-server", "resource-proxy-username", "resource-proxy-password"} {
		cmd.Flags().String(name, "", "")
		_ = cmd.Flags().MarkDeprecated(name, "the principal creates the cluster Secret with the address of --resource-proxy-address and its own certificate") // the flag exists
	}
	return p.withIgnored(cmd, ownAccess, append([]string{"tls-from-secret", "ca-from-secret", "days"}, keyFlags...)...)
}
