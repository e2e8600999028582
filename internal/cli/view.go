package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output formats.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
	asName  = "name"
)

// view is the output of a command in every format.
type view struct {
	object   any      // JSON and YAML
	names    []string // one per line
	headings []string
	wide     int // number of last columns that need -o wide
	rows     [][]cell
	text     string // instead of a table
	empty    string // printed to stderr if there are no rows
}

func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().VarP(choice(format, asTable, asTable, asWide, asJSON, asYAML, asName), "output", "o",
		"Output format.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{asTable, asWide, asJSON, asYAML, asName}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
}

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
			return fmt.Errorf("encode as YAML: %w", err)
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
		if v.empty != "" {
			fmt.Fprintln(p.Stderr, v.empty)
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

func pluralize(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// say prints one line to stdout.
func (p *Program) say(format string, args ...any) {
	fmt.Fprintln(p.Stdout, printable(fmt.Sprintf(format, args...)))
}

// warn prints one line to stderr.
func (p *Program) warn(format string, args ...any) {
	fmt.Fprintln(p.Stderr, "argocd-agentctl:", printable(fmt.Sprintf(format, args...)))
}
