// Package cmdline has what the command lines of argocd-agent and argocd-agentctl share: argument checks, errors with
// exit codes, flags with a choice of words, and build information.
package cmdline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes, for supervisors and scripts.
const (
	ExitFailure = 1 // a retry may help
	ExitUsage   = 2 // arguments or settings are invalid: a retry does not help
)

// usageError reports invalid arguments or settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// UsageError marks an error as invalid use.
func UsageError(err error) error { return usageError{err} }

// UsageErrorf returns an error about invalid use.
func UsageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Report prints one line per joined error and returns the exit code.
func Report(w io.Writer, program string, err error) int {
	if err == nil {
		return 0
	}
	code := ExitFailure
	if usage, ok := errors.AsType[usageError](err); ok {
		code, err = ExitUsage, usage.error
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		fmt.Fprintln(w, program+":", err)
	}
	return code
}

// Prepare sets the defaults of a root command and of all commands below it. The usage line of a command sets how many
// arguments it accepts. A group without a subcommand prints its help. A group with an unknown subcommand fails.
func Prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true // Report prints errors
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	prepare(root)
}

func prepare(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.DisableFlagsInUseLine = true
	if cmd.RunE == nil {
		cmd.Args = unknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else {
		cmd.Args = checkArguments
	}
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("run `%s --help` to list commands", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])/2) // two changes leave little of a short word
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return UsageErrorf("unknown command %q: %s", cmd.CommandPath()+" "+args[0], hint)
}

// checkArguments compares the arguments with the usage line: NAME is required, [NAME] is optional, NAME… can be repeated.
func checkArguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	switch repeated := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "…") }); {
	case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
		return UsageErrorf("%s is missing: run `%s --help` for examples", names[len(args)], cmd.CommandPath())
	case len(args) > len(names) && !repeated:
		return UsageErrorf("unexpected argument %q: run `%s --help` for examples", args[len(names)], cmd.CommandPath())
	}
	return nil
}

func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return UsageErrorf("unknown flag %s: run `%s --help` to list flags", name, cmd.CommandPath())
	case errors.As(err, &invalid):
		return UsageErrorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return usageError{err}
}

// choice is the value of a flag with a fixed set of words.
type choice[T ~string] struct {
	target *T
	words  []string
}

// Choice returns a flag value that accepts only these words.
func Choice[T ~string](target *T, initial T, words ...T) pflag.Value {
	*target = initial
	v := &choice[T]{target: target}
	for _, word := range words {
		v.words = append(v.words, string(word))
	}
	return v
}

func (v *choice[T]) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.words, ", "))
	}
	*v.target = T(s)
	return nil
}

func (v *choice[T]) String() string {
	if v.target == nil {
		return ""
	}
	return string(*v.target)
}

func (v *choice[T]) Type() string { return strings.Join(v.words, "|") }

// Wrap returns text in indented lines of at most 100 columns.
func Wrap(text string) string {
	const indent = "     "
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) >= 100 && line != indent {
			lines, line = append(lines, line), indent
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
