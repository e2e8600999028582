package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The linker sets these for releases: -ldflags "-X main.version=… -X main.commit=…".
var version, commit string

// build is the build information of this binary.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// thisBuild returns the values of the linker, otherwise those that the Go tool has recorded.
func thisBuild() build {
	b := build{Version: version, Commit: commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
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
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print version and build information",
		Long:    "Prints the version of this binary, its commit and the version of Go that built it.",
		Example: "  argocd-agent version -o json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if format == formatJSON {
				encoder := json.NewEncoder(p.stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(thisBuild())
			}
			_, err := fmt.Fprint(p.stdout, thisBuild())
			return err
		},
	}
	cmd.Flags().VarP(choice(&format, formatText, formatText, formatJSON), "output", "o", "Output format.")
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage:\n  %s [-o text|json]\n\nExample:\n%s\n", cmd.Long, cmd.CommandPath(), cmd.Example)
	})
	return cmd
}
