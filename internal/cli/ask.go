package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "Skip the confirmation prompt. Required if stdin is not a terminal.")
}

// askConfirmation asks the user before a destructive action.
func (p *Program) askConfirmation(yes bool, action string) error {
	if yes {
		return nil
	}
	if !p.Interactive {
		return usageErrorf("stdin is not a terminal: --yes is required to %s", action)
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
