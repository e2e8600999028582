package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func init() {
	cobra.AddTemplateFunc("flagHelp", flagHelp)
}

// usageTemplate replaces cobra's template: examples precede commands and flags, and global flags are listed only once.
const usageTemplate = `Usage:
  {{if not .HasAvailableSubCommands}}{{.UseLine}} [flags]{{else}}{{if ne .Use .Name}}{{.UseLine}} [flags]
  {{end}}{{.CommandPath}} COMMAND [flags]{{end}}{{if .Aliases}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

For help on a command, run ` + "`{{.CommandPath}} COMMAND --help`." + `{{end}}{{with flagHelp .NonInheritedFlags}}

Flags:
{{.}}{{end}}{{if .HasParent}}

Global flags select the clusters and the kubeconfig. To list them, run ` + "`argocd-agentctl --help`." + `{{end}}
`

// flagHelp lists flags, each with its description on lines of at most 100 columns.
func flagHelp(set *pflag.FlagSet) string {
	var lines []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Deprecated != "" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if word, ok := map[string]string{"string": "TEXT", "strings": "TEXT,…", "stringToString": "KEY=VALUE,…", "duration": "DURATION", "int": "NUMBER"}[kind]; ok {
			kind = word
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			usage += " [default: " + f.DefValue + "]"
		}
		lines = append(lines, strings.TrimRight("  "+name+" "+kind, " "), cmdline.Wrap(usage))
	})
	return strings.Join(lines, "\n")
}

func (p *Program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a shell completion script",
		Example: `  source <(argocd-agentctl completion bash)                                    # current shell
  argocd-agentctl completion bash > /etc/bash_completion.d/argocd-agentctl     # all shells
  argocd-agentctl completion zsh > "${fpath[1]}/_argocd-agentctl"
  argocd-agentctl completion fish > ~/.config/fish/completions/argocd-agentctl.fish`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(p.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(p.Stdout)
			case "fish":
				return root.GenFishCompletion(p.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(p.Stdout)
			}
			return cmdline.UsageErrorf("%q: must be bash, zsh, fish or powershell", args[0])
		},
	}
}
