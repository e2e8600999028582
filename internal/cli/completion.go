package cli

import "github.com/spf13/cobra"

func (p *Program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a shell completion script",
		Example: `  source <(argocd-agentctl completion bash)                                    # current shell
  argocd-agentctl completion bash > /etc/bash_completion.d/argocd-agentctl     # all shells
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
			return usageErrorf("%q: must be bash, zsh, fish or powershell", args[0])
		},
	}
}
