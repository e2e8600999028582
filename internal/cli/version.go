package cli

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

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

func (b build) String() string {
	return fmt.Sprintf("argocd-agentctl %s\ncommit          %s\nbuilt with      %s for %s\n", b.Version, b.Commit, b.GoVersion, b.Platform)
}

// versions are what this program and those that it looks after were built from.
type versions struct {
	build
	Principal *principalVersion   `json:"principal,omitempty"` // nil: not known
	Agents    map[string][]string `json:"agents,omitempty"`    // version → names
	Apart     []string            `json:"apart,omitempty"`     // what was never tried together
}

type principalVersion struct {
	Version string `json:"version"` // as its image is tagged
	Image   string `json:"image"`
}

func (p *Program) versionCommand() *cobra.Command {
	var format string
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, of the principal and of agents",
		Long: `Prints what this program was built from: version, commit, and the version of Go. If there is a hub to ask, also
which versions the principal and its agents have, and which of them are too far apart: two minor versions are tried.
An agent that is away counts with the version it had last.`,
		Example: "  argocd-agentctl version\n  argocd-agentctl version --client -o json",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{build: p.build()}
			if !client {
				if err := p.askVersions(cmd.Context(), &v); err != nil {
					p.warn("the hub was not asked: %v", err)
				}
			}
			return p.show(format, view{object: v, names: []string{v.Version}, text: v.text()})
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "This program's alone: nobody is asked.")
	outputFlag(cmd, &format)
	return cmd
}

// askVersions asks the hub.
func (p *Program) askVersions(ctx context.Context, v *versions) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	a, err := p.agents()
	if err != nil {
		return err
	}
	list, err := a.list(ctx, "")
	if err != nil {
		return err
	}
	set, err := a.principalSettings(ctx)
	if err != nil {
		return err
	}
	if set.installed {
		v.Principal = &principalVersion{Version: tagOf(set.image), Image: set.image}
	}
	v.Agents = map[string][]string{}
	for i := range list.Items {
		if has := list.Items[i].Status.Version; has != "" {
			v.Agents[has] = append(v.Agents[has], list.Items[i].Name)
		}
	}
	v.compare()
	return nil
}

const versionTimeout = 5 * time.Second

// compare finds out what was never tried together.
func (v *versions) compare() {
	if v.Principal == nil {
		return
	}
	if tooFar(v.Version, v.Principal.Version) {
		v.Apart = append(v.Apart, fmt.Sprintf("argocd-agentctl %s", v.Version))
	}
	for _, has := range slices.Sorted(maps.Keys(v.Agents)) {
		if tooFar(has, v.Principal.Version) {
			v.Apart = append(v.Apart, fmt.Sprintf("%s %s", few(v.Agents[has]), has))
		}
	}
}

// text is for people.
func (v versions) text() string {
	var b strings.Builder
	b.WriteString(v.String())
	if v.Principal != nil {
		fmt.Fprintf(&b, "\nprincipal       %s (%s)\n", printable(v.Principal.Version), printable(v.Principal.Image))
	} else if len(v.Agents) > 0 {
		b.WriteString("\n")
	}
	for _, has := range slices.Sorted(maps.Keys(v.Agents)) {
		fmt.Fprintf(&b, "agents          %s: %s\n", printable(has), few(v.Agents[has]))
	}
	if len(v.Apart) > 0 {
		fmt.Fprintf(&b, "\nMore than two minor versions from the principal, which is not tested; upgrade the older: %s\n", printable(strings.Join(v.Apart, "; ")))
	}
	return b.String()
}

// few names some, and counts the others.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
