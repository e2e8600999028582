package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// The help of every command is recorded, so that reviewers see changes.
func TestHelp_MatchesRecording(t *testing.T) {
	s := &script{t: t}
	each((&Program{Now: time.Now}).root(), func(cmd *cobra.Command) {
		args := strings.Fields(cmd.CommandPath())[1:]
		got := s.run(append(args, "--help")...)
		path := filepath.Join("testdata", "help", strings.Join(append([]string{"ctl"}, args...), "-")+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; if this is intended, run: go test ./internal/cli -run Help -update\n%s", path, difference(string(want), got))
		}
	})
}

func TestHelp_HasShortTextAndExample(t *testing.T) {
	each((&Program{Now: time.Now}).root(), func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text must be one line without a period: %q", cmd.CommandPath(), cmd.Short)
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "argocd-agentctl "+strings.Join(strings.Fields(cmd.CommandPath())[1:], " ")) {
			t.Errorf("%s has no example of itself", cmd.CommandPath())
		}
		if n := len([]rune(cmd.Short)); n > 75 {
			t.Errorf("%s: the short text has %d characters: %s", cmd.CommandPath(), n, cmd.Short)
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.UsageString()) {
			if n := len([]rune(line)); n > 120 {
				t.Errorf("%s: line of %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
	})
}

// each visits every command.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			each(sub, visit)
		}
	}
}

func TestUsage_Transcript(t *testing.T) {
	s := &script{t: t, env: []string{"HOME=/nonexistent"}, replace: map[string]string{`/[^ ]*nonexistent[^ ,:]*`: "FILE"}}
	s.play("usage.txt")
}
