package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	levelOK      = "ok"
	levelNote    = "note"    // not checked, or possibly intended
	levelWarning = "warning" // works, but needs attention
	levelProblem = "problem" // does not work
)

// finding is the result of one check.
type finding struct {
	Level   string `json:"level"`
	Cluster string `json:"cluster"` // hub, workload cluster or both
	Check   string `json:"check"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// checkRun collects findings about one side.
type checkRun struct {
	program *Program
	cluster string
	found   []finding
}

func (e *checkRun) add(level, check, remedy, format string, args ...any) {
	e.found = append(e.found, finding{Level: level, Cluster: e.cluster, Check: check, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (e *checkRun) ok(check, format string, args ...any) { e.add(levelOK, check, "", format, args...) }
func (e *checkRun) note(check, format string, args ...any) {
	e.add(levelNote, check, "", format, args...)
}
func (e *checkRun) warning(check, remedy, format string, args ...any) {
	e.add(levelWarning, check, remedy, format, args...)
}
func (e *checkRun) problem(check, remedy, format string, args ...any) {
	e.add(levelProblem, check, remedy, format, args...)
}

func (e *checkRun) skipped(check string, err error) {
	e.add(levelNote, check, "", "not checked: %v", err)
}

// checkOptions are the flags of doctor and validate.
type checkOptions struct {
	address string
	offline bool
	strict  bool
}

// addCheckFlags adds the flags of doctor and validate.
func (p *Program) addCheckFlags(cmd *cobra.Command, o *checkOptions) *cobra.Command {
	cmd.Flags().StringVar(&o.address, "address", "", "`HOST:PORT` of the principal for workload clusters. If unset, from the settings of the agent or the Service.")
	cmd.Flags().BoolVar(&o.offline, "offline", false, "Skip checks that use the network of this machine: DNS, connections to the principal and to Redis.")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "Exit with code 3 for warnings as well.")
	return p.withOutput(cmd)
}

func (p *Program) doctorCommand() *cobra.Command {
	var o checkOptions
	return p.addCheckFlags(&cobra.Command{
		Use:   "doctor",
		Short: "Check the installation and suggest fixes",
		Long: `Checks the hub. With --agent-context, checks a workload cluster and compares both. The checks cover CRDs, RBAC,
Secrets, certificates, Redis, DNS, the connection to the principal (also through HTTPS_PROXY or a WebSocket), clocks,
versions and settings. Each problem has a suggested fix. Nothing is changed.

The exit code is 3 if there is a problem.`,
		Example: `  argocd-agentctl doctor
  argocd-agentctl doctor --principal-context hub --agent-context w1
  argocd-agentctl doctor -o json | jq '.[] | select(.level == "problem")'`,
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			found, atHub := p.checkHub(ctx, hub.cluster, o)
			if p.global.agentContext != "" {
				spoke, err := p.spoke()
				if err != nil {
					return err
				}
				more, atSpoke := p.checkSpoke(ctx, spoke, o)
				found = append(found, more...)
				if atHub != nil && atSpoke != nil {
					found = append(found, p.compareSides(ctx, hub.cluster, spoke, atHub, atSpoke)...)
				}
			}
			return p.showFindings(found, o)
		}),
	}, &o)
}

func (p *Program) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "validate",
		Aliases: []string{"check-config"},
		Short:   "Check the hub or a workload cluster",
		Long:    "Runs the checks of `argocd-agentctl doctor` for one side.",
	}
	one := func(use, short, long, example string, connect func() (*cluster, error), check func(context.Context, *cluster, checkOptions) ([]finding, *checked)) *cobra.Command {
		var o checkOptions
		return p.addCheckFlags(&cobra.Command{Use: use, Short: short, Example: example,
			Long: long + "\n\nEach problem has a suggested fix. Nothing is changed. The exit code is 3 if there is a problem.",
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := connect()
				if err != nil {
					return err
				}
				found, _ := check(cmd.Context(), c, o)
				return p.showFindings(found, o)
			}}, &o)
	}
	cmd.AddCommand(
		one("principal", "Check the hub",
			"Checks the hub: CRDs, RBAC of the principal, CA, certificates of principal and resource proxy, Redis,\nsettings of Argo CD and the state of the agents.",
			"  argocd-agentctl validate principal --principal-context hub", p.hub, p.checkHub),
		one("agent", "Check a workload cluster",
			"Checks a workload cluster: CRDs, RBAC of the agent, its certificate and trusted CAs, Redis, and the connection\nfrom this machine to the principal.",
			"  argocd-agentctl validate agent --agent-context w1", p.spoke, p.checkSpoke))
	return cmd
}

// showFindings prints findings by cluster and a summary.
func (p *Program) showFindings(found []finding, o checkOptions) error {
	colors := map[string]color{levelOK: green, levelNote: faint, levelWarning: yellow, levelProblem: red}
	counts := map[string]int{}
	var b strings.Builder
	clusters := []string{}
	for _, f := range found {
		counts[f.Level]++
		if !slices.Contains(clusters, f.Cluster) {
			clusters = append(clusters, f.Cluster)
		}
	}
	names := []string{}
	for _, cluster := range clusters {
		fmt.Fprintln(&b, p.paint(bold, cluster))
		for _, f := range found {
			if f.Cluster != cluster {
				continue
			}
			fmt.Fprintf(&b, "  %s  %-14s %s\n", p.paint(colors[f.Level], fmt.Sprintf("%-7s", f.Level)), f.Check, printable(f.Message))
			if f.Remedy != "" {
				fmt.Fprintf(&b, "           %-14s → %s\n", "", printable(f.Remedy))
			}
			names = append(names, f.Level+"/"+f.Check)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s, %s\n", counts[levelOK], pluralize(counts[levelNote], "note"), pluralize(counts[levelWarning], "warning"), pluralize(counts[levelProblem], "problem"))
	if err := p.show(view{object: found, names: names, text: b.String()}); err != nil {
		return err
	}
	if counts[levelProblem] > 0 || o.strict && counts[levelWarning] > 0 {
		return findingsError{}
	}
	return nil
}
