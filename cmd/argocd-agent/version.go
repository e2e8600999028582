package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker for releases: -ldflags "-X main.version=… -X main.commit=…".
var version, commit string

// build says what this binary was made of.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

const unknownCommit = "unknown"

// thisBuild asks the linker first, then what the Go tool has recorded.
func thisBuild() build {
	b := build{Version: version, Commit: commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	if b.Commit == "" {
		b.Commit = unknownCommit
	}
	return b
}

func (b build) String() string {
	return fmt.Sprintf("argocd-agent %s\ncommit       %s\nbuilt with   %s for %s\n", b.Version, b.Commit, b.GoVersion, b.Platform)
}

func (b *build) fill(info *debug.BuildInfo) {
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Commit != "" {
		return
	}
	modified := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			b.Commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = " with changes"
		}
	}
	if b.Commit != "" {
		b.Commit += modified
	}
}

func (p *program) versionCommand() *cobra.Command {
	const plain, asJSON = "text", "json"
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Long:    "Prints the version of this program, the commit it was built from, and the version of Go that built it.",
		Example: "  argocd-agent version -o json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if format == asJSON {
				encoder := json.NewEncoder(p.stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(b)
			}
			_, err := fmt.Fprint(p.stdout, b)
			return err
		},
	}
	cmd.Flags().VarP(choice(&format, plain, plain, asJSON), "output", "o", "Form of the output.")
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage:\n  %s [-o text|json]\n\nExample:\n%s\n", cmd.Long, cmd.CommandPath(), cmd.Example)
	})
	return cmd
}
