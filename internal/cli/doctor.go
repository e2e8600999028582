package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Levels of findings.
const (
	levelOK      = "ok"
	levelNote    = "note"    // could not be looked at, or is as somebody may want it
	levelWarning = "warning" // works, and not forever or not as expected
	levelProblem = "problem" // does not work
)

// finding is the outcome of one check.
type finding struct {
	Level   string `json:"level"`
	Cluster string `json:"where"` // hub, workload cluster or both
	Check   string `json:"check"`
	Message string `json:"message"`
	Remedy  string `json:"do,omitempty"` // what to do about it
}

// checkRun collects findings about one side.
type checkRun struct {
	program *Program
	where   string
	found   []finding
}

func (e *checkRun) add(level, check, do, format string, args ...any) {
	e.found = append(e.found, finding{Level: level, Cluster: e.where, Check: check, Message: fmt.Sprintf(format, args...), Remedy: do})
}

func (e *checkRun) ok(check, format string, args ...any) { e.add(levelOK, check, "", format, args...) }
func (e *checkRun) note(check, format string, args ...any) {
	e.add(levelNote, check, "", format, args...)
}
func (e *checkRun) warning(check, do, format string, args ...any) {
	e.add(levelWarning, check, do, format, args...)
}
func (e *checkRun) problem(check, do, format string, args ...any) {
	e.add(levelProblem, check, do, format, args...)
}

// unknown notes that something could not be looked at.
func (e *checkRun) unknown(check string, err error) {
	e.add(levelNote, check, "", "not looked at: %v", err)
}

// options of all examinations.
type checkOptions struct {
	address string
	offline bool
	strict  bool
	format  string
}

func (o *checkOptions) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.address, "address", "", "`HOST:PORT` of the principal as clusters reach it. Without it, what agent and Services say.")
	cmd.Flags().BoolVar(&o.offline, "offline", false, "Leave out what is done over the network from here: DNS, connections to the principal and to Redis.")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "Exit with 3 for warnings too.")
	outputFlag(cmd, &o.format)
}

func (p *Program) doctorCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, and say what to do about it",
		Long: `Examines the hub and, if --agent-context is given, a workload cluster and how the two fit together: definitions,
rights, Secrets, certificates, Redis and its password, DNS and the way to the hub (through HTTPS_PROXY or in a
WebSocket too), clocks, versions, and settings that differ. Each finding says what to do. Nothing is changed.

The exit code is 3 if there is a problem.`,
		Example: `  argocd-agentctl doctor
  argocd-agentctl doctor --principal-context hub --agent-context w1
  argocd-agentctl doctor -o json | jq '.[] | select(.level == "problem")'`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := p.hub()
			if err != nil {
				return err
			}
			found, atHub := p.examineHub(cmd.Context(), hub, o)
			if p.global.agentContext != "" {
				spoke, err := p.spoke()
				if err != nil {
					return err
				}
				more, atSpoke := p.examineSpoke(cmd.Context(), spoke, o)
				found = append(found, more...)
				if atHub != nil && atSpoke != nil {
					found = append(found, p.compareSides(cmd.Context(), hub, spoke, atHub, atSpoke)...)
				}
			}
			return p.showFindings(found, o)
		},
	}
	o.declare(cmd)
	return cmd
}

func (p *Program) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "validate",
		Aliases: []string{"check-config"},
		Short:   "Check how one side is set up",
		Long:    "Checks how the principal or an agent is set up: the part of `argocd-agentctl doctor` that concerns it.",
	}
	one := func(use, short, long, example string, examine func(context.Context, checkOptions) ([]finding, error)) *cobra.Command {
		var o checkOptions
		sub := &cobra.Command{Use: use, Short: short, Example: example, Args: argCount(0, 0),
			Long: long + "\n\nEach finding says what to do. Nothing is changed. The exit code is 3 if there is a problem.",
			RunE: func(cmd *cobra.Command, _ []string) error {
				found, err := examine(cmd.Context(), o)
				if err != nil {
					return err
				}
				return p.showFindings(found, o)
			}}
		o.declare(sub)
		return sub
	}
	cmd.AddCommand(
		one("principal", "Check the hub",
			"Checks the hub: definitions, the principal's rights, the CA and the certificates of principal and resource proxy,\nRedis and its password, what Argo CD is told, and how the agents are.",
			"  argocd-agentctl validate principal --principal-context hub", func(ctx context.Context, o checkOptions) ([]finding, error) {
				hub, err := p.hub()
				if err != nil {
					return nil, err
				}
				found, _ := p.examineHub(ctx, hub, o)
				return found, nil
			}),
		one("agent", "Check a workload cluster",
			"Checks a workload cluster: definitions, the agent's rights, its certificate and whom it believes, Redis and its\npassword, and whether the principal can be reached, from here, as the agent would.",
			"  argocd-agentctl validate agent --agent-context w1", func(ctx context.Context, o checkOptions) ([]finding, error) {
				spoke, err := p.spoke()
				if err != nil {
					return nil, err
				}
				found, _ := p.examineSpoke(ctx, spoke, o)
				return found, nil
			}))
	return cmd
}

// showFindings prints what was found; what is wrong comes last, where people look.
func (p *Program) showFindings(found []finding, o checkOptions) error {
	paints := map[string]paint{levelOK: good, levelNote: faint, levelWarning: unsure, levelProblem: bad}
	counts := map[string]int{}
	var b strings.Builder
	wheres := []string{}
	for _, f := range found {
		counts[f.Level]++
		if !slices.Contains(wheres, f.Cluster) {
			wheres = append(wheres, f.Cluster)
		}
	}
	names := []string{}
	for _, where := range wheres {
		fmt.Fprintln(&b, p.colour(strong, where))
		for _, f := range found {
			if f.Cluster != where {
				continue
			}
			fmt.Fprintf(&b, "  %s  %-14s %s\n", p.colour(paints[f.Level], fmt.Sprintf("%-7s", f.Level)), f.Check, printable(f.Message))
			if f.Remedy != "" {
				fmt.Fprintf(&b, "           %-14s → %s\n", "", printable(f.Remedy))
			}
			names = append(names, f.Level+"/"+f.Check)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s, %s\n", counts[levelOK], pluralize(counts[levelNote], "note"), pluralize(counts[levelWarning], "warning"), pluralize(counts[levelProblem], "problem"))
	if err := p.show(o.format, view{object: found, names: names, text: b.String()}); err != nil {
		return err
	}
	if counts[levelProblem] > 0 || o.strict && counts[levelWarning] > 0 {
		return findingsError{}
	}
	return nil
}

// side is what is known of a cluster after its examination.
type side struct {
	settings *settings
	skew     time.Duration // of its clock against ours
	argo     map[string]string
	params   map[string]string // argocd-cmd-params-cm
	image    string            // of Argo CD
}
