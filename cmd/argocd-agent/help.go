package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// width at which help texts are broken: what fits into a terminal beside
// something else.
const width = 100

// help prints what a command does, an example, and its flags under their
// headings.
func (f *flags) help(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s [flags]\n\nExample:\n%s\n", cmd.Long, cmd.CommandPath(), cmd.Example)
	fmt.Fprintf(w, "\nEvery flag can also be set by the environment variable that is named with it. A flag wins over its\n"+
		"variable, and an empty variable counts as absent.\n")
	for _, g := range f.groups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, flag := range g.flags {
			f.describe(w, flag)
		}
	}
}

func (f *flags) describe(w io.Writer, flag *pflag.Flag) {
	fmt.Fprint(w, "  --"+flag.Name)
	if kind := flag.Value.Type(); kind != "" {
		fmt.Fprint(w, " "+kind)
	}
	fmt.Fprintln(w)
	wrap(w, "      ", flag.Usage)
	standard := flag.DefValue
	if standard == "" {
		standard = f.unset[flag.Name]
	}
	if standard != "" {
		standard = "default: " + standard + "; "
	}
	wrap(w, "      ", "["+standard+"environment: "+f.env[flag.Name]+"]")
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

// rootHelp prints the commands.
func rootHelp(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s COMMAND [flags]\n\nCommands:\n", cmd.Long, cmd.CommandPath())
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" {
			fmt.Fprintf(w, "  %-10s %s\n", sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\n`%s COMMAND --help` explains each, with an example and all its settings.\n", cmd.CommandPath())
}
