package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

func (p *Program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Give hubs and agents short names, to be used instead of contexts",
		Long: `Keeps a file with short names for hubs and agents. ` + "`--principal hub --agent w1`" + ` then stands for their contexts
and namespaces. The file looks like this:

  contexts:
    principals:
      hub: {kube-context: hub-context, namespace: argocd}
    agents:
      w1: {kube-context: w1-context, namespace: argocd}
  default-principal: hub`,
	}
	cmd.AddCommand(p.configListCommand(), p.configCreateCommand(), p.configPutCommand("add", "Add a hub or an agent", false),
		p.configPutCommand("edit", "Change a hub or an agent", true), p.configDeleteCommand())
	return cmd
}

func (p *Program) configListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Short: "List the short names", Args: argCount(0, 0), Example: "  argocd-agentctl config list",
		RunE: func(*cobra.Command, []string) error {
			c, err := readConfigFile(p.global.configFile, false)
			if err != nil {
				return err
			}
			v := view{object: c, headings: []string{"NAME", "ROLE", "CONTEXT", "NAMESPACE", "DEFAULT"}, nothing: "No short names in " + p.global.configFile + "."}
			for _, role := range roles {
				for _, name := range slices.Sorted(maps.Keys(c.places(role))) {
					one := c.places(role)[name]
					isDefault := ""
					if role == rolePrincipal && name == c.DefaultPrincipal {
						isDefault = "yes"
					}
					v.names = append(v.names, role+"/"+name)
					v.rows = append(v.rows, []cell{{text: name}, {text: role}, {text: one.Context}, {text: cmp.Or(one.Namespace, usualNamespace)}, {text: isDefault}})
				}
			}
			return p.show(format, v)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

const (
	rolePrincipal = "principal"
	roleAgent     = "agent"
)

var roles = []string{rolePrincipal, roleAgent}

// places are the entries of a role.
func (c *configFile) places(role string) map[string]contextEntry {
	all := &c.Contexts.Principals
	if role == roleAgent {
		all = &c.Contexts.Agents
	}
	if *all == nil {
		*all = map[string]contextEntry{}
	}
	return *all
}

func checkRole(role string) error {
	if !slices.Contains(roles, role) {
		return usageErrorf("%q: say principal or agent", role)
	}
	return nil
}

func (p *Program) configCreateCommand() *cobra.Command {
	var hub string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make the file from the contexts of the kubeconfig",
		Long:  "Makes the file: one context of the kubeconfig is the hub, and each other one an agent of the same name.",
		Example: `  argocd-agentctl config create --hub hub-context
  argocd-agentctl config list`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			file := p.global.configFile
			if _, err := os.Stat(file); err == nil {
				return fmt.Errorf("%s exists already: change it with `argocd-agentctl config add` and edit, or remove it first", file)
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			if files := p.getenv("KUBECONFIG"); files != "" {
				rules.Precedence = splitPaths(files)
			}
			rules.ExplicitPath = p.global.kubeconfig
			raw, err := rules.Load()
			if err != nil {
				return fmt.Errorf("read the kubeconfig: %w", err)
			}
			hub = cmp.Or(hub, p.global.principalContext, raw.CurrentContext)
			if raw.Contexts[hub] == nil {
				return usageErrorf("the kubeconfig has no context %q: say with --hub which one leads to the hub", hub)
			}
			c := &configFile{DefaultPrincipal: hub}
			for name, context := range raw.Contexts {
				role := roleAgent
				if name == hub {
					role = rolePrincipal
				}
				c.places(role)[name] = contextEntry{Context: name, Namespace: cmp.Or(context.Namespace, usualNamespace)}
			}
			if err := c.write(file); err != nil {
				return err
			}
			p.say("%s written: 1 principal, %s", file, pluralize(len(c.Contexts.Agents), "agent"))
			return nil
		},
	}
	cmd.Flags().StringVar(&hub, "hub", "", "`CONTEXT` that leads to the hub. Without it, the current one.")
	return cmd
}

func (p *Program) configPutCommand(verb, short string, existing bool) *cobra.Command {
	var makeDefault bool
	cmd := &cobra.Command{
		Use:   verb + " principal|agent NAME",
		Short: short,
		Long:  short + ". What --principal-context and --principal-namespace, or --agent-context and\n--agent-namespace, say is kept under the name.",
		Example: fmt.Sprintf(`  argocd-agentctl config %s agent w1 --agent-context w1-admin --agent-namespace argocd
  argocd-agentctl config %s principal hub --principal-context hub-admin --default`, verb, verb),
		Args: argCount(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			role, name := args[0], args[1]
			if err := checkRole(role); err != nil {
				return err
			}
			c, err := readConfigFile(p.global.configFile, false)
			if err != nil {
				return err
			}
			old, there := c.places(role)[name]
			switch {
			case there && !existing:
				return fmt.Errorf("%s %q is there already: change it with `argocd-agentctl config edit`", role, name)
			case !there && existing:
				return fmt.Errorf("there is no %s %q: add it with `argocd-agentctl config add`", role, name)
			}
			context, namespace := p.global.principalContext, p.global.principalNamespace
			if role == roleAgent {
				context, namespace = p.global.agentContext, p.global.agentNamespace
			}
			if context = cmp.Or(context, old.Context); context == "" {
				return usageErrorf("--%s-context is missing: the name has to stand for something", role)
			}
			c.places(role)[name] = contextEntry{Context: context, Namespace: cmp.Or(namespace, old.Namespace, usualNamespace)}
			if role == rolePrincipal && makeDefault {
				c.DefaultPrincipal = name
			}
			if err := c.write(p.global.configFile); err != nil {
				return err
			}
			p.say("%s/%s written", role, name)
			return nil
		},
	}
	cmd.Flags().BoolVar(&makeDefault, "default", false, "This hub is meant where none is named.")
	return cmd
}

func (p *Program) configDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete principal|agent NAME",
		Short:   "Delete a short name",
		Example: "  argocd-agentctl config delete agent w1",
		Args:    argCount(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			role, name := args[0], args[1]
			if err := checkRole(role); err != nil {
				return err
			}
			c, err := readConfigFile(p.global.configFile, false)
			if err != nil {
				return err
			}
			if _, ok := c.places(role)[name]; !ok {
				return fmt.Errorf("there is no %s %q: `argocd-agentctl config list` shows those there are", role, name)
			}
			delete(c.places(role), name)
			if role == rolePrincipal && c.DefaultPrincipal == name {
				c.DefaultPrincipal = ""
			}
			if err := c.write(p.global.configFile); err != nil {
				return err
			}
			p.say("%s/%s deleted", role, name)
			return nil
		},
	}
}
