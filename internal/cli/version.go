package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says what this binary was made of.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// build asks the linker first, then what the Go tool has recorded.
func (p *Program) build() build {
	b := build{Version: p.Version, Commit: p.Commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && p.Commit == "" {
				b.Commit = setting.Value
			}
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}

func (p *Program) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Long:    "Prints the version of this program, the commit it was built from, and the version of Go that built it.",
		Example: "  argocd-agentctl version -o json",
		Args:    takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			b := p.build()
			return p.show(format, view{object: b, names: []string{b.Version},
				text: fmt.Sprintf("argocd-agentctl %s\ncommit          %s\nbuilt with      %s for %s\n", b.Version, b.Commit, b.GoVersion, b.Platform)})
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
