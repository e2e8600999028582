package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Every command's help is recorded, so that a change of it is seen by whoever reviews it.
func TestHelpIsAsRecorded(t *testing.T) {
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
			t.Errorf("the help is not that of %s; if that is right, run: go test ./internal/cli -run Help -update\n%s", path, difference(string(want), got))
		}
	})
}

func TestHelpTeaches(t *testing.T) {
	each((&Program{Now: time.Now}).root(), func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: a short text is one line without a full stop: %q", cmd.CommandPath(), cmd.Short)
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "argocd-agentctl "+strings.Join(strings.Fields(cmd.CommandPath())[1:], " ")) {
			t.Errorf("%s has no example of itself", cmd.CommandPath())
		}
		var out bytes.Buffer
		help(&out, cmd)
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(line)); n > 120 {
				t.Errorf("%s: a line of %d characters: %s", cmd.CommandPath(), n, line)
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

func TestWrongUseIsToldApart(t *testing.T) {
	s := &script{t: t, env: []string{"HOME=/nonexistent"}, replace: map[string]string{`/[^ ]*nonexistent[^ ,:]*`: "FILE"}}
	s.play("usage.txt")
}
