package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// width at which help texts are broken: what fits into a terminal beside something else.
const width = 100

// help prints what a command does, with examples, and what it can be told.
func help(w io.Writer, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", text, usageLine(cmd))
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(w, "\nAlso called: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	commands(w, cmd)
	flagHelp(w, "Flags", cmd.NonInheritedFlags(), cmd.Root() == cmd)
	if cmd.Root() != cmd {
		fmt.Fprint(w, "\nWhich clusters are meant, and where a kubeconfig is, is said with the flags that all commands share:\n"+
			"`argocd-agentctl --help` lists them.\n")
		return
	}
	fmt.Fprint(w, `
Output is a table for people, on a terminal and in a pipe alike, as with kubectl, so that grep works the
same in both; scripts ask for -o json, yaml or name. Colour is for terminals only, and never with NO_COLOR set.
What destroys something asks on a terminal, and wants --yes elsewhere.

Exit codes: 0 all is well; 1 it did not work; 2 wrong use; 3 it worked and found something (doctor and validate:
a problem; diff: a difference; pending: something that waits).
`)
}

func usageLine(cmd *cobra.Command) string {
	const flags = " [flags]"
	_, args, takes := strings.Cut(cmd.Use, " ")
	switch path := cmd.CommandPath(); {
	case cmd.HasAvailableSubCommands() && takes:
		return path + " " + args + flags + "\n  " + path + " COMMAND" + flags
	case cmd.HasAvailableSubCommands():
		return path + " COMMAND" + flags
	case takes:
		return path + " " + args + flags
	default:
		return path + flags
	}
}

func commands(w io.Writer, cmd *cobra.Command) {
	longest := 0
	for _, sub := range cmd.Commands() {
		longest = max(longest, len(sub.Name()))
	}
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprint(w, "\nCommands:\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-*s  %s\n", longest, sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\n`%s COMMAND --help` explains each, with examples.\n", cmd.CommandPath())
}

func flagHelp(w io.Writer, title string, set *pflag.FlagSet, global bool) {
	begun := false
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Deprecated != "" {
			return
		}
		if !begun {
			fmt.Fprintf(w, "\n%s:\n", title)
			begun = true
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind = spelled(kind); kind != "" {
			name += " " + kind
		}
		fmt.Fprintf(w, "  %s\n", name)
		wrap(w, "      ", usage+note(f, global))
	})
}

// spelled says what a flag takes.
func spelled(kind string) string {
	switch kind {
	case "string":
		return "TEXT"
	case "strings":
		return "TEXT,…"
	case "stringToString":
		return "KEY=VALUE,…"
	case "duration":
		return "DURATION"
	case "int":
		return "NUMBER"
	}
	return kind
}

func note(f *pflag.Flag, global bool) string {
	var notes []string
	switch f.DefValue {
	case "", "false", "[]", "0", "0s":
	default:
		notes = append(notes, "default: "+f.DefValue)
	}
	if global {
		if variable := environmentOf(f.Name); variable != "" {
			notes = append(notes, "environment: "+variable)
		}
	}
	if len(notes) == 0 {
		return ""
	}
	return " [" + strings.Join(notes, "; ") + "]"
}

// wrap prints text in lines that are not longer than width.
func wrap(w io.Writer, indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) >= width && line != indent {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
