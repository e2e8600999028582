package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// help prints the description of a command, an example, and its flags by group.
func (f *flags) help(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s [flags]\n\nExample:\n%s\n", cmd.Long, cmd.CommandPath(), cmd.Example)
	fmt.Fprintf(w, "\nEach flag has an environment variable. A flag overrides it. An empty variable counts as absent.\n")
	for _, g := range f.groups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, s := range g.settings {
			fmt.Fprintln(w, strings.TrimRight("  --"+s.Name+" "+s.Value.Type(), " "))
			fmt.Fprintln(w, cmdline.Wrap(s.Usage))
			about := "environment: " + s.env + "]"
			if text := s.shownDefault(); text != "" {
				about = "default: " + text + "; " + about
			}
			fmt.Fprintln(w, cmdline.Wrap("["+about))
		}
	}
}

// shownDefault returns the default of a flag, or the text that explains it.
func (s *setting) shownDefault() string {
	if s.DefValue != "" {
		return s.DefValue
	}
	return s.unsetText
}

// rootHelp lists the commands.
func rootHelp(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s COMMAND [flags]\n\nCommands:\n", cmd.Long, cmd.CommandPath())
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" {
			fmt.Fprintf(w, "  %-10s %s\n", sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\n`%s COMMAND --help` shows an example and all flags of a command.\n", cmd.CommandPath())
}
