package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Formats of output.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
	asName  = "name"
)

// view is what a command has to show, in every form it can be asked for.
type view struct {
	object   any      // as JSON and YAML
	names    []string // as kind/name, one a line
	headings []string // of a table
	wide     int      // that many of the last columns are shown with -o wide only
	rows     [][]cell
	text     string // instead of a table
	nothing  string // said where there are no rows
}

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().VarP(choice(format, asTable, asTable, asWide, asJSON, asYAML, asName), "output", "o",
		"Form of the output: a table (wide: with more columns) for people, json or yaml with everything, or names for further commands.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{asTable, asWide, asJSON, asYAML, asName}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
}

// show prints a view.
func (p *Program) show(format string, v view) error {
	switch format {
	case asJSON:
		encoder := json.NewEncoder(p.Stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v.object)
	case asYAML:
		text, err := yaml.Marshal(v.object)
		if err != nil {
			return fmt.Errorf("write as YAML: %w", err)
		}
		_, err = p.Stdout.Write(text)
		return err
	case asName:
		for _, name := range v.names {
			if _, err := fmt.Fprintln(p.Stdout, name); err != nil {
				return err
			}
		}
		return nil
	}
	if v.text != "" {
		_, err := io.WriteString(p.Stdout, v.text)
		return err
	}
	if len(v.rows) == 0 {
		if v.nothing != "" {
			fmt.Fprintln(p.Stderr, v.nothing) // as kubectl: a pipe gets nothing
		}
		return nil
	}
	headings, rows := v.headings, v.rows
	if format != asWide && v.wide > 0 {
		headings = headings[:len(headings)-v.wide]
		narrow := make([][]cell, len(rows))
		for i, row := range rows {
			narrow[i] = row[:len(headings)]
		}
		rows = narrow
	}
	_, err := io.WriteString(p.Stdout, p.table(headings, rows))
	return err
}

// pluralize is a number of things, in words.
func pluralize(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// say prints a line for people about what was done.
func (p *Program) say(format string, args ...any) {
	fmt.Fprintln(p.Stdout, printable(fmt.Sprintf(format, args...)))
}

// warn prints a line beside the output.
func (p *Program) warn(format string, args ...any) {
	fmt.Fprintln(p.Stderr, "argocd-agentctl:", printable(fmt.Sprintf(format, args...)))
}
