package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Manage short names for hubs and agents",
		Long: `Manages a file with short names for hubs and agents. ` + "`--principal hub --agent w1`" + ` then selects their contexts and
namespaces. Example of the file:

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
	return p.withOutput(&cobra.Command{
		Use: "list [principal|agent]", Short: "List the short names", Example: "  argocd-agentctl config list\n  argocd-agentctl config list agent",
		RunE: func(_ *cobra.Command, args []string) error {
			shown := roles
			if len(args) > 0 {
				if shown = args; !slices.Contains(roles, args[0]) {
					return cmdline.UsageErrorf("%q: must be principal or agent", args[0])
				}
			}
			config, err := readConfigFile(p.global.configFile, false)
			if err != nil {
				return err
			}
			v := view{object: config, headings: []string{"NAME", "ROLE", "CONTEXT", "NAMESPACE", "DEFAULT"}, empty: "No short names in " + p.global.configFile + "."}
			for _, role := range shown {
				for _, name := range slices.Sorted(maps.Keys(config.entries(role))) {
					one := config.entries(role)[name]
					isDefault := ""
					if role == rolePrincipal && name == config.DefaultPrincipal {
						isDefault = "yes"
					}
					v.names = append(v.names, role+"/"+name)
					v.rows = append(v.rows, []cell{c(name), c(role), c(one.Context), c(cmp.Or(one.Namespace, defaultNamespace)), c(isDefault)})
				}
			}
			return p.show(v)
		},
	})
}

const (
	rolePrincipal = "principal"
	roleAgent     = "agent"
)

var roles = []string{rolePrincipal, roleAgent}

func (c *configFile) entries(role string) map[string]contextEntry {
	all := &c.Contexts.Principals
	if role == roleAgent {
		all = &c.Contexts.Agents
	}
	if *all == nil {
		*all = map[string]contextEntry{}
	}
	return *all
}

// changeEntry returns a RunE for arguments ROLE NAME that changes the file.
func (p *Program) changeEntry(done string, change func(c *configFile, role, name string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		role, name := args[0], args[1]
		if !slices.Contains(roles, role) {
			return cmdline.UsageErrorf("%q: must be principal or agent", role)
		}
		c, err := readConfigFile(p.global.configFile, false)
		if err != nil {
			return err
		}
		if err := change(c, role, name); err != nil {
			return err
		}
		if err := c.write(p.global.configFile); err != nil {
			return err
		}
		p.say("%s/%s %s", role, name, done)
		return nil
	}
}

func (p *Program) configCreateCommand() *cobra.Command {
	var hub string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create the file from the contexts of the kubeconfig",
		Long:  "Creates the file. One context of the kubeconfig becomes the hub, each other context an agent with the same name.",
		Example: `  argocd-agentctl config create --hub hub-context
  argocd-agentctl config list`,
		RunE: func(*cobra.Command, []string) error {
			file := p.global.configFile
			if _, err := os.Stat(file); err == nil {
				return fmt.Errorf("%s exists. To change it, run `argocd-agentctl config add` or `argocd-agentctl config edit`", file)
			}
			raw, err := p.kubeconfigRules().Load()
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w", err)
			}
			hub = cmp.Or(hub, p.global.principalContext, raw.CurrentContext)
			if raw.Contexts[hub] == nil {
				return cmdline.UsageErrorf("the kubeconfig has no context %q: set --hub", hub)
			}
			c := &configFile{DefaultPrincipal: hub}
			for name, context := range raw.Contexts {
				role := roleAgent
				if name == hub {
					role = rolePrincipal
				}
				c.entries(role)[name] = contextEntry{Context: name, Namespace: cmp.Or(context.Namespace, defaultNamespace)}
			}
			if err := c.write(file); err != nil {
				return err
			}
			p.say("%s written: 1 principal, %s", file, pluralize(len(c.Contexts.Agents), "agent"))
			return nil
		},
	}
	cmd.Flags().StringVar(&hub, "hub", "", "`CONTEXT` of the hub. If unset, the current context.")
	return cmd
}

func (p *Program) configPutCommand(verb, short string, existing bool) *cobra.Command {
	var makeDefault bool
	cmd := &cobra.Command{
		Use:   verb + " principal|agent NAME",
		Short: short,
		Long:  short + ". The values of --principal-context and --principal-namespace, or of --agent-context and\n--agent-namespace, are stored with the name.",
		Example: fmt.Sprintf(`  argocd-agentctl config %s agent w1 --agent-context w1-admin --agent-namespace argocd
  argocd-agentctl config %s principal hub --principal-context hub-admin --default`, verb, verb),
		RunE: p.changeEntry("written", func(c *configFile, role, name string) error {
			old, found := c.entries(role)[name]
			switch {
			case found && !existing:
				return fmt.Errorf("%s %q exists. To change it, run `argocd-agentctl config edit`", role, name)
			case !found && existing:
				return fmt.Errorf("%s %q not found. To add it, run `argocd-agentctl config add`", role, name)
			}
			context, namespace := p.global.principalContext, p.global.principalNamespace
			if role == roleAgent {
				context, namespace = p.global.agentContext, p.global.agentNamespace
			}
			if context = cmp.Or(context, old.Context); context == "" {
				return cmdline.UsageErrorf("--%s-context is missing", role)
			}
			c.entries(role)[name] = contextEntry{Context: context, Namespace: cmp.Or(namespace, old.Namespace, defaultNamespace)}
			if role == rolePrincipal && makeDefault {
				c.DefaultPrincipal = name
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&makeDefault, "default", false, "Use this hub if no other is selected.")
	return cmd
}

func (p *Program) configDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete principal|agent NAME",
		Short:   "Delete a short name",
		Example: "  argocd-agentctl config delete agent w1",
		RunE: p.changeEntry("deleted", func(c *configFile, role, name string) error {
			if _, ok := c.entries(role)[name]; !ok {
				return fmt.Errorf("%s %q not found: run `argocd-agentctl config list`", role, name)
			}
			delete(c.entries(role), name)
			if role == rolePrincipal && c.DefaultPrincipal == name {
				c.DefaultPrincipal = ""
			}
			return nil
		}),
	}
}

// configFile is the file of short names.
type configFile struct {
	Contexts struct {
		Principals map[string]contextEntry `json:"principals,omitempty"`
		Agents     map[string]contextEntry `json:"agents,omitempty"`
	} `json:"contexts"`
	DefaultPrincipal string `json:"default-principal,omitempty"`
}

type contextEntry struct {
	Context   string `json:"kube-context"`
	Namespace string `json:"namespace,omitempty"`
}

func defaultConfigFile(env map[string]string) string {
	dir := env["XDG_CONFIG_HOME"]
	if dir == "" {
		if env["HOME"] == "" {
			return ""
		}
		dir = filepath.Join(env["HOME"], ".config")
	}
	return filepath.Join(dir, "argocd-agent", "ctl.conf")
}

// readConfigFile reads the file. If it is not required, it may be absent.
func readConfigFile(file string, required bool) (*configFile, error) {
	c := &configFile{}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && !required {
		return c, nil
	}
	if err != nil {
		return nil, cmdline.UsageErrorf("read --config: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		return nil, cmdline.UsageErrorf("decode %s: %w; see `argocd-agentctl config --help`", file, err)
	}
	return c, nil
}

func (c *configFile) write(file string) error {
	content, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("create directory of %s: %w", file, err)
	}
	return writePrivate(file, content)
}

// writePrivate replaces a file atomically. Only its owner can read it.
func writePrivate(file string, content []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.Remove(next.Name()) // fails after the rename
	_, err = next.Write(content)
	if end := next.Close(); err == nil {
		err = end
	}
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
