package cli

import "github.com/spf13/cobra"

func (p *Program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that completes commands, flags and agents' names in a shell",
		Example: `  source <(argocd-agentctl completion bash)                                    # this shell
  argocd-agentctl completion bash > /etc/bash_completion.d/argocd-agentctl     # every shell
  argocd-agentctl completion zsh > "${fpath[1]}/_argocd-agentctl"
  argocd-agentctl completion fish > ~/.config/fish/completions/argocd-agentctl.fish`,
		Args:      argCount(1, 1),
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
			return usageErrorf("there is no script for the shell %q: it must be bash, zsh, fish or powershell", args[0])
		},
	}
}
