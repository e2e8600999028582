package cli

import (
	"cmp"
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

// build describes this binary.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// build uses the values of the linker, then those of the Go tool.
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
	b.Version, b.Commit = cmp.Or(b.Version, "dev"), cmp.Or(b.Commit, "unknown")
	return b
}

func (b build) String() string {
	return fmt.Sprintf("argocd-agentctl %s\ncommit          %s\nbuilt with      %s for %s\n", b.Version, b.Commit, b.GoVersion, b.Platform)
}

// versions are those of argocd-agentctl, the principal and the agents.
type versions struct {
	build
	Principal    *principalVersion   `json:"principal,omitempty"`    // if nil, unknown
	Agents       map[string][]string `json:"agents,omitempty"`       // version → names
	Incompatible []string            `json:"incompatible,omitempty"` // not tested with the principal
}

type principalVersion struct {
	Version string `json:"version"` // tag of the image
	Image   string `json:"image"`
}

func (p *Program) versionCommand() *cobra.Command {
	var format string
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of argocd-agentctl, principal and agents",
		Long: `Prints the version, the commit and the Go version of argocd-agentctl. If the hub is reachable, also prints the versions
of principal and agents, and which of them differ by more than two minor versions. For disconnected agents, the last
known version counts.`,
		Example: "  argocd-agentctl version\n  argocd-agentctl version --client -o json",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{build: p.build()}
			if !client {
				if err := p.readVersions(cmd.Context(), &v); err != nil {
					p.warn("Versions on the hub are unknown: %v", err)
				}
			}
			return p.show(format, view{object: v, names: []string{v.Version}, text: v.text()})
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "Print only the version of argocd-agentctl.")
	outputFlag(cmd, &format)
	return cmd
}

// readVersions reads versions from the hub.
func (p *Program) readVersions(ctx context.Context, v *versions) error {
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
		if version := list.Items[i].Status.Version; version != "" {
			v.Agents[version] = append(v.Agents[version], list.Items[i].Name)
		}
	}
	v.compare()
	return nil
}

const versionTimeout = 5 * time.Second

// compare lists versions that are not tested with the principal.
func (v *versions) compare() {
	if v.Principal == nil {
		return
	}
	if incompatible(v.Version, v.Principal.Version) {
		v.Incompatible = append(v.Incompatible, fmt.Sprintf("argocd-agentctl %s", v.Version))
	}
	for _, version := range slices.Sorted(maps.Keys(v.Agents)) {
		if incompatible(version, v.Principal.Version) {
			v.Incompatible = append(v.Incompatible, fmt.Sprintf("%s %s", shortList(v.Agents[version], 5), version))
		}
	}
}

func (v versions) text() string {
	var b strings.Builder
	b.WriteString(v.String())
	if v.Principal != nil {
		fmt.Fprintf(&b, "\nprincipal       %s (%s)\n", printable(v.Principal.Version), printable(v.Principal.Image))
	} else if len(v.Agents) > 0 {
		b.WriteString("\n")
	}
	for _, version := range slices.Sorted(maps.Keys(v.Agents)) {
		fmt.Fprintf(&b, "agents          %s: %s\n", printable(version), shortList(v.Agents[version], 5))
	}
	if len(v.Incompatible) > 0 {
		fmt.Fprintf(&b, "\nNot tested with the principal, because they differ by more than two minor versions: %s\n", printable(strings.Join(v.Incompatible, "; ")))
	}
	return b.String()
}
