package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "Do not ask. Needed where nobody can be asked: in a pipe or a script.")
}

// askConfirmation asks before something is destroyed.
func (p *Program) askConfirmation(yes bool, what string) error {
	if yes {
		return nil
	}
	if !p.Asks {
		return usageErrorf("nobody can be asked here, so --yes is needed to %s", what)
	}
	fmt.Fprintf(p.Stderr, "%s? [y/N] ", strings.ToUpper(what[:1])+what[1:])
	line, err := bufio.NewReader(p.Stdin).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done")
}
