package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestReport_FailureIsOneLineAndExitCodeOne(t *testing.T) {
	var out bytes.Buffer
	if code := Report(&out, "program", fmt.Errorf("connect: %w", errors.New("refused"))); code != ExitFailure || out.String() != "program: connect: refused\n" {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}

func TestReport_PrintsJoinedErrors(t *testing.T) {
	var out bytes.Buffer
	if code := Report(&out, "program", UsageError(errors.Join(errors.New("a"), errors.New("b")))); code != ExitUsage || out.String() != "program: a\nprogram: b\n" {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}

func TestPrepare_ArgumentsFollowUsageLine(t *testing.T) {
	for _, tc := range []struct{ use, args, want string }{
		{"list", "", ""},
		{"list", "a", `unexpected argument "a"`},
		{"show AGENT", "", "AGENT is missing"},
		{"show AGENT", "a", ""},
		{"show AGENT", "a b", `unexpected argument "b"`},
		{"delete AGENT…", "", "AGENT… is missing"},
		{"delete AGENT…", "a b c", ""},
		{"pending [AGENT…]", "", ""},
		{"pending [AGENT…]", "a b", ""},
		{"print AGENT [cert|key]", "a", ""},
		{"print AGENT [cert|key]", "a b", ""},
		{"print AGENT [cert|key]", "a b c", `unexpected argument "c"`},
	} {
		root := &cobra.Command{Use: "program"}
		root.AddCommand(&cobra.Command{Use: tc.use, RunE: func(*cobra.Command, []string) error { return nil }})
		Prepare(root)
		root.SetArgs(append(strings.Fields(tc.use)[:1], strings.Fields(tc.args)...))
		err := root.Execute()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s with %q: %v, want %q", tc.use, tc.args, err, tc.want)
		}
	}
}
