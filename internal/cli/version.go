package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) build() cmdline.Build { return cmdline.BuildOf(p.Version, p.Commit, p.Date) }

// versions are those of argocd-agentctl, the principal and the agents.
type versions struct {
	cmdline.Build
	Principal    *principalVersion   `json:"principal,omitempty"`    // if nil, unknown
	Agents       map[string][]string `json:"agents,omitempty"`       // version → names
	Incompatible []string            `json:"incompatible,omitempty"` // not tested with the principal
}

type principalVersion struct {
	Version string `json:"version"` // tag of the image
	Image   string `json:"image"`
}

func (p *Program) versionCommand() *cobra.Command {
	var client bool
	cmd := p.withOutput(&cobra.Command{
		Use:   "version",
		Short: "Print the versions of argocd-agentctl, principal and agents",
		Long: `Prints the version, the commit and the Go version of argocd-agentctl. If the hub is reachable, also prints the versions
of principal and agents, and which of them differ by more than two minor versions. For disconnected agents, the last
known version counts.`,
		Example: "  argocd-agentctl version\n  argocd-agentctl version --client -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Build: p.build()}
			if !client {
				if err := p.readVersions(cmd.Context(), &v); err != nil {
					p.warn("Versions on the hub are unknown: %v", err)
				}
			}
			return p.show(view{object: v, names: []string{v.Version}, text: v.text()})
		},
	})
	cmd.Flags().BoolVar(&client, "client", false, "Print only the version of argocd-agentctl.")
	cmd.Flags().BoolP("indent", "i", false, "") // JSON is always indented
	hide(cmd.Flags(), "indent")
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
	list, err := a.list(ctx)
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
	b.WriteString(v.Text(programName))
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
