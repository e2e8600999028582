package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
		lines = append(lines, strings.TrimRight("  "+name+" "+kind, " "))
		line := "     "
		for word := range strings.FieldsSeq(usage) {
			if len(line)+len(word) >= 100 {
				lines, line = append(lines, line), "     "
			}
			line += " " + word
		}
		lines = append(lines, line)
	})
	return strings.Join(lines, "\n")
}
