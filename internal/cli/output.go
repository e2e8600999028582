package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
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

// withOutput adds the flag -o to a command.
func (p *Program) withOutput(cmd *cobra.Command) *cobra.Command {
	formats := []string{asTable, asWide, asJSON, asYAML, asName}
	cmd.Flags().VarP(outputFormat{cmdline.Choice(&p.output, asTable, formats...)}, "output", "o", "Output format.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// outputFormat is the value of -o. In existing installations, the table is called text.
type outputFormat struct{ pflag.Value }

func (f outputFormat) Set(s string) error {
	if s == "text" {
		s = asTable
	}
	return f.Value.Set(s)
}

// show prints the output of a command in the format of -o.
func (p *Program) show(v view) error {
	switch p.output {
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
	if p.output != asWide {
		v.narrow()
	}
	_, err := io.WriteString(p.Stdout, p.table(v.headings, v.rows))
	return err
}

// narrow drops the columns that need -o wide.
func (v *view) narrow() {
	v.headings = v.headings[:len(v.headings)-v.wide]
	for i := range v.rows {
		v.rows[i] = v.rows[i][:len(v.headings)]
	}
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

// ScreenOf returns the terminal of a file, or the zero value.
func ScreenOf(f *os.File) Screen {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return Screen{}
	}
	size := func(of func(width, height int) int) func() int {
		return func() int {
			width, height, err := term.GetSize(fd)
			if err != nil {
				width, height = 80, 24
			}
			return of(width, height)
		}
	}
	return Screen{Terminal: true, Width: size(func(w, _ int) int { return w }), Height: size(func(_, h int) int { return h })}
}

// color is an ANSI color code.
type color string

const (
	plain  color = ""
	green  color = "32"
	red    color = "31"
	yellow color = "33"
	faint  color = "2"
	bold   color = "1"
)

func (p *Program) paint(c color, text string) string {
	if c == plain || text == "" || !p.Screen.Terminal || p.getenv("NO_COLOR") != "" || p.getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// cell is one entry of a table.
type cell struct {
	text  string
	color color
}

func c(text string) cell { return cell{text: text} }

// table prints rows in columns. Empty cells become "-". Control characters are removed.
func (p *Program) table(headings []string, rows [][]cell) string {
	widths := make([]int, len(headings))
	for i, h := range headings {
		widths[i] = len(h)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = cmp.Or(printable(row[i].text), "-")
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var b strings.Builder
	line := func(row []cell) {
		for i, cell := range row {
			b.WriteString(p.paint(cell.color, cell.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.text)+3))
			}
		}
		b.WriteString("\n")
	}
	head := make([]cell, len(headings))
	for i, h := range headings {
		head[i] = cell{h, bold}
	}
	line(head)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// printable makes a text safe for one line of a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// age is the time since t.
func (p *Program) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(p.Now().Sub(t))
}

func span(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// withYes adds the flag --yes to a command.
func (p *Program) withYes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "Skip the confirmation prompt. Required if stdin is not a terminal.")
	return cmd
}

// askConfirmation asks the user before a destructive action.
func (p *Program) askConfirmation(action string) error {
	if p.yes {
		return nil
	}
	if !p.Interactive {
		return cmdline.UsageErrorf("stdin is not a terminal: --yes is required to %s", action)
	}
	fmt.Fprintf(p.Stderr, "%s? [y/N] ", strings.ToUpper(action[:1])+action[1:])
	line, err := bufio.NewReader(p.Stdin).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("canceled: nothing was changed")
}
