package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// agentOptions is what somebody wants an agent to be.
type agentOptions struct {
	cmd         *cobra.Command
	mode        string
	namespace   string
	mapping     string
	labels      map[string]string
	annotations map[string]string
	kinds       []string
	shared      bool
	suspended   bool
}

func (w *agentOptions) addFlags(cmd *cobra.Command) {
	w.cmd = cmd
	f := cmd.Flags()
	f.Var(choice(&w.mode, "", string(kind.Managed), string(kind.Autonomous)), "mode",
		"Where Applications are written: on the hub (managed) or on the cluster (autonomous). Without it, what the agent first connects with.")
	f.StringToStringVarP(&w.labels, "label", "l", nil, "Labels of its cluster Secret, for the cluster generators of ApplicationSets; several with commas, or several times.")
	f.StringToStringVar(&w.annotations, "annotation", nil, "Annotations of its cluster Secret, likewise.")
	f.StringVar(&w.namespace, "hub-namespace", "", "`NAMESPACE` on the hub that is the agent's own. Without it, its name.")
	f.Var(choice(&w.mapping, "", "namespace", "destination"), "mapping", "How Applications are assigned to it. Without it, as the principal is set.")
	f.StringSliceVar(&w.kinds, "kinds", nil, "What is exchanged with it, of applications, appprojects, repositories, gpgkeys. Without it, all.")
	f.BoolVar(&w.shared, "shared", false, "Let it use the hub's repo-server and Redis, so that its cluster needs none of its own.")
	f.BoolVar(&w.suspended, "suspended", false, "Refuse its connection until it is resumed.")
}

var agentKinds = []string{"applications", "appprojects", "repositories", "gpgkeys"}

// spec makes an agent's spec of the wish, or says what is wrong with it.
func (w *agentOptions) spec() (v1alpha1.Spec, error) {
	for _, name := range w.kinds {
		if !slices.Contains(agentKinds, name) {
			return v1alpha1.Spec{}, usageErrorf("--kinds %q: it must be of %s", name, strings.Join(agentKinds, ", "))
		}
	}
	if w.namespace != "" {
		if wrong := validation.IsDNS1123Label(w.namespace); len(wrong) > 0 {
			return v1alpha1.Spec{}, usageErrorf("--hub-namespace %q: %s", w.namespace, strings.Join(wrong, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.labels)) {
		wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(w.labels[key])...)
		if len(wrong) > 0 {
			return v1alpha1.Spec{}, usageErrorf("--label %s=%s: %s", key, w.labels[key], strings.Join(wrong, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.annotations)) {
		if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
			return v1alpha1.Spec{}, usageErrorf("--annotation %s: %s", key, strings.Join(wrong, "; "))
		}
	}
	return v1alpha1.Spec{
		Mode: w.mode, Namespace: w.namespace, Mapping: w.mapping, Kinds: w.kinds, Shared: w.shared, Suspended: w.suspended,
		Cluster: v1alpha1.ClusterSecret{Labels: w.labels, Annotations: w.annotations},
	}, nil
}

// object makes a whole Agent of the wish.
func (w *agentOptions) object(name, namespace string) (*v1alpha1.Agent, error) {
	spec, err := w.spec()
	if err != nil {
		return nil, err
	}
	return &v1alpha1.Agent{
		TypeMeta:   metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: spec,
	}, nil
}

func (p *Program) agentCreateCommand() *cobra.Command {
	var wish agentOptions
	var format string
	var dry bool
	cmd := &cobra.Command{
		Use:   "create AGENT",
		Short: "Register an agent before it first connects",
		Long: `Registers an agent: creates its Agent object on the hub. From it the principal makes the agent's namespace and
its cluster Secret. Where registration is not required, an agent with a valid certificate registers itself on its
first connection, and this is not needed.

To let a cluster join in one step, see ` + "`argocd-agentctl agent join-token`" + `.`,
		Example: `  argocd-agentctl agent create w1 --mode managed --label env=prod,region=eu

  # For Git: print the object instead of creating it
  argocd-agentctl agent create w1 --mode managed --dry-run -o yaml`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(args[0]); err != nil {
				return err
			}
			a, err := p.agents()
			if err != nil {
				return err
			}
			agent, err := wish.object(args[0], a.namespace)
			if err != nil {
				return err
			}
			if dry {
				return p.show(format, view{object: declaration(agent), names: []string{nameOf(agent)}, text: nameOf(agent) + " would be created\n"})
			}
			if agent, err = a.create(cmd.Context(), agent); err != nil {
				return err
			}
			return p.show(format, view{object: agent, names: []string{nameOf(agent)}, text: nameOf(agent) + " created\n"})
		},
	}
	wish.addFlags(cmd)
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "Create nothing; with -o yaml, what would be created is printed.")
	for _, name := range []string{"resource-proxy-server", "resource-proxy-username", "resource-proxy-password"} {
		cmd.Flags().String(name, "", "")
		_ = cmd.Flags().MarkDeprecated(name, "the principal makes the cluster Secret, with an address from --resource-proxy-address and a certificate of its own") // fails only for a flag that is not there
	}
	return cmd
}

// declaration is an agent without what only the API server and the principal write: what goes into Git.
func declaration(agent *v1alpha1.Agent) map[string]any {
	return map[string]any{"apiVersion": agent.APIVersion, "kind": agent.Kind,
		"metadata": map[string]any{"name": agent.Name, "namespace": agent.Namespace}, "spec": agent.Spec}
}
