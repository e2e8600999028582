package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// importOptions are the flags of the import commands.
type importOptions struct {
	overrides   map[string]string
	image       string
	exec        bool
	acceptRisks bool
	wait        bool
	timeout     time.Duration
}

func (o *importOptions) addOverrides(cmd *cobra.Command) {
	cmd.Flags().StringToStringVar(&o.overrides, "set", nil, "Settings as environment variables, for example ARGOCD_PRINCIPAL_LOG_LEVEL=debug. They replace converted ones.")
}

func (o *importOptions) addTimeout(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "Timeout of each wait.")
}

func (o *importOptions) addFlags(cmd *cobra.Command) {
	o.addOverrides(cmd)
	o.addTimeout(cmd)
	cmd.Flags().StringVar(&o.image, "image", "", "`IMAGE` to install. If unset, the image of this version.")
	cmd.Flags().BoolVar(&o.acceptRisks, "accept-risks", false, "Continue although the plan has risks.")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the new program is ready.")
}

func (p *Program) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Move an existing argocd-agent installation",
		Long: `Moves a hub and its agents from the argocd-agent of argoproj-labs to this one, without a change of workloads.

  1. plan     shows what happens with each setting and object. It changes nothing.
  2. hub      stops the existing principal, registers its agents, and starts the new principal. No agent is connected
              now. Workloads run, and Argo CD on the workload clusters continues.
  3. agent    stops the existing agent of one cluster, starts the new one, and waits until it is in sync. Repeat it for
              each agent.
  4. confirm  deletes what only the existing programs used. Until then, revert starts them again.

The existing objects stay. The new programs have objects with names that end in -imported, and the existing Services
lead to the new pods. A stopped Deployment has 0 replicas and an annotation with the former number. Every command can
be repeated after an interruption.`,
		Example: `  argocd-agentctl import plan
  argocd-agentctl import hub
  argocd-agentctl import plan w1 --agent-context w1
  argocd-agentctl import agent w1 --agent-context w1
  argocd-agentctl agent list

  # Back to the existing programs
  argocd-agentctl import revert w1 --agent-context w1
  argocd-agentctl import revert

  # When all agents are in sync
  argocd-agentctl import confirm w1 --agent-context w1
  argocd-agentctl import confirm`,
	}
	cmd.AddCommand(p.importPlanCommand(), p.importHubCommand(), p.importAgentCommand(), p.importRevertCommand(), p.importConfirmCommand())
	return cmd
}

// importHub returns the hub with the Deployments that it has.
func (p *Program) importHub(ctx context.Context) (*importSide, error) {
	hub, err := p.hub()
	if err != nil {
		return nil, err
	}
	s := &importSide{cluster: hub, role: rolePrincipal}
	return s, s.find(ctx)
}

// importSideOf returns the cluster of an agent, or the hub if there is no argument.
func (p *Program) importSideOf(ctx context.Context, args []string) (*importSide, error) {
	if len(args) == 0 {
		return p.importHub(ctx)
	}
	if err := checkName(args[0]); err != nil {
		return nil, err
	}
	if p.global.agentContext == "" {
		names, err := readConfigFile(p.global.configFile, false)
		if err != nil {
			return nil, err
		}
		entry, ok := names.entries(roleAgent)[args[0]]
		if !ok {
			return nil, cmdline.UsageErrorf("--agent-context is missing: set the context of the workload cluster")
		}
		p.global.agentContext, p.global.agentNamespace = entry.Context, cmp.Or(p.global.agentNamespace, entry.Namespace)
	}
	spoke, err := p.spoke()
	if err != nil {
		return nil, err
	}
	s := &importSide{cluster: spoke, role: roleAgent, agent: args[0]}
	return s, s.find(ctx)
}

// planView is the plan as a table and as JSON.
func (s *importSide) planView() view {
	v := view{headings: []string{"OBJECT", "ACTION", "DETAIL"}, names: []string{}}
	for _, item := range s.items {
		v.names = append(v.names, item.Object)
		colors := map[string]color{actRefuse: red, actDecide: red, actRisk: yellow, actWarn: yellow, actIgnore: faint}
		v.rows = append(v.rows, []cell{c(item.Object), {item.Action, colors[item.Action]}, c(item.Detail)})
	}
	v.object = struct {
		Side      string            `json:"side"`
		Context   string            `json:"context"`
		Namespace string            `json:"namespace"`
		Items     []planItem        `json:"items"`
		Settings  map[string]string `json:"settings"`
	}{s.role, s.context, s.namespace, s.items, s.values}
	return v
}

func (p *Program) importPlanCommand() *cobra.Command {
	var o importOptions
	cmd := p.withOutput(&cobra.Command{
		Use:   "plan [AGENT]",
		Short: "Show what an import does, and change nothing",
		Long: `Shows what an import does with each setting and object of a hub or, with AGENT, of a workload cluster. ACTION is one
of:

  keep     stays as it is, and the new program uses it
  convert  stays as it is, and the new program gets another form of it
  ignore   stays as it is, and the new program does not use it
  create   is new
  stop     is scaled to 0
  warn     read the detail
  risk     --accept-risks is required
  decide   --set is required
  refuse   prevents the import

The exit code is 3 if the import would be refused. With -o json, settings has the settings of the new program.`,
		Example: `  argocd-agentctl import plan
  argocd-agentctl import plan w1 --agent-context w1 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.importSideOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			if hub, err := p.importHub(cmd.Context()); err == nil && s.role == roleAgent {
				if s.auth, err = hub.authMethod(cmd.Context()); err != nil {
					return err
				}
			}
			if err := s.inspect(cmd.Context(), o.overrides); err != nil {
				return err
			}
			if err := p.show(s.planView()); err != nil {
				return err
			}
			if len(blocking(s.items, false)) > 0 {
				return findingsError{}
			}
			return nil
		},
	})
	o.addOverrides(cmd)
	return cmd
}

// progress prints a step of a command.
func (p *Program) progress() func(string, ...any) {
	start := p.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(p.Stderr, "%5.1fs  %s\n", p.Now().Sub(start).Seconds(), printable(fmt.Sprintf(format, args...)))
	}
}

// approve shows the plan and asks the user.
func (p *Program) approve(ctx context.Context, s *importSide, o *importOptions, action string) error {
	if err := s.inspect(ctx, o.overrides); err != nil {
		return err
	}
	if err := p.show(s.planView()); err != nil {
		return err
	}
	if found := blocking(s.items, o.acceptRisks); len(found) > 0 {
		var reasons []string
		for _, item := range found {
			reasons = append(reasons, fmt.Sprintf("%s: %s (%s)", item.Object, item.Detail, item.Action))
		}
		return errors.New("refused: " + strings.Join(reasons, "; "))
	}
	return p.askConfirmation(action)
}

func (p *Program) importHubCommand() *cobra.Command {
	var o importOptions
	cmd := p.withYes(&cobra.Command{
		Use:   "hub",
		Short: "Replace the existing principal",
		Long: `Shows the plan of the hub, and asks. Then it

  1. installs the CRDs, copies the cluster Secrets, and creates an Agent for each, without a mode. The principal
     refuses an agent without a mode.
  2. scales the existing principal to 0, and waits until its pods are gone. Agents are disconnected from now on.
  3. installs the new principal as Deployment argocd-agent-principal-imported, and waits until it is ready.`,
		Example: `  argocd-agentctl import hub
  argocd-agentctl import hub --set ARGOCD_PRINCIPAL_AUTH='mtls:subject:^CN=([^,]+),OU=fleet$' --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			hub, err := p.importHub(ctx)
			if err != nil {
				return err
			}
			if err := p.approve(ctx, hub, &o, "replace the principal of "+hub.String()); err != nil {
				return err
			}
			step := p.progress()
			if err := hub.register(ctx, step); err != nil {
				return err
			}
			if err := hub.stopOld(ctx, &o, step); err != nil {
				return err
			}
			if err := hub.start(ctx, &o, step); err != nil {
				return err
			}
			p.say("Next, for each agent: argocd-agentctl import agent AGENT --agent-context CONTEXT")
			return nil
		},
	})
	o.addFlags(cmd)
	return cmd
}

func (p *Program) importAgentCommand() *cobra.Command {
	var o importOptions
	cmd := p.withYes(&cobra.Command{
		Use:   "agent AGENT",
		Short: "Replace the existing agent of a workload cluster",
		Long: `Shows the plan of a workload cluster, and asks. Then it

  1. sets the mode of the Agent on the hub to that of the existing agent.
  2. scales the existing agent to 0, and waits until its pods are gone.
  3. installs the new agent as Deployment argocd-agent-agent-imported, and waits until it is connected and in sync.

The new principal must be ready. Set --agent-context, or add the agent with ` + "`argocd-agentctl config add agent AGENT`" + `.`,
		Example: `  argocd-agentctl import agent w1 --agent-context w1
  argocd-agentctl import agent w1 --agent-context w1 --live-exec --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return p.importAgent(cmd.Context(), args, &o) },
	})
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.exec, "live-exec", false, "Allow exec sessions from the hub.")
	return cmd
}

func (p *Program) importAgent(ctx context.Context, args []string, o *importOptions) error {
	hub, err := p.importHub(ctx)
	if err != nil {
		return err
	}
	if err := hub.hubReady(); err != nil {
		return err
	}
	spoke, err := p.importSideOf(ctx, args)
	if err != nil {
		return err
	}
	if spoke.auth, err = hub.authMethod(ctx); err != nil {
		return err
	}
	if err := p.approve(ctx, spoke, o, "replace the agent of "+spoke.String()); err != nil {
		return err
	}
	step := p.progress()
	agent, err := hub.setMode(ctx, spoke.agent, spoke.mode)
	if err != nil {
		return err
	}
	step("Agent %s has mode %s", agent.Name, spoke.mode)
	if err := spoke.stopOld(ctx, o, step); err != nil {
		return err
	}
	if replicas(spoke.ours) == 0 {
		if err := hub.disconnected(ctx, agent.Name, o.timeout); err != nil {
			return err
		}
	}
	if err := spoke.start(ctx, o, step); err != nil || !o.wait {
		return err
	}
	step("waiting until the agent is in sync")
	err = poll(ctx, o.timeout, "wait until agent "+agent.Name+" is in sync", func(ctx context.Context) (bool, error) {
		now, err := agents{hub.cluster}.get(ctx, agent.Name)
		return err == nil && isSynced(now), nil
	})
	if err != nil {
		return fmt.Errorf("%w; to start the existing agent again, run `argocd-agentctl import revert %s`", err, agent.Name)
	}
	step("agent %s is in sync", agent.Name)
	return nil
}

// setMode gives an Agent its mode, unless it has one. The principal writes the status of the Agent at the same time.
func (s *importSide) setMode(ctx context.Context, name, mode string) (agent *v1alpha1.Agent, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if agent, err = s.ensureAgent(ctx, name); err != nil {
			return err
		}
		switch agent.Spec.Mode {
		case mode:
			return nil
		case "":
			_, err := (agents{s.cluster}).patch(ctx, "set the mode of agent "+name, name,
				map[string]any{"metadata": map[string]any{"resourceVersion": agent.ResourceVersion}, "spec": map[string]any{"mode": mode}})
			return err
		}
		return fmt.Errorf("Agent %s has mode %s on the hub, and the existing agent runs in mode %s: check --agent-context, or run `argocd-agentctl agent reconfigure %s --mode %s`",
			name, agent.Spec.Mode, mode, name, mode)
	})
	return agent, err
}

// disconnected waits until the hub shows no session of an agent whose programs are stopped. Otherwise the status of an earlier
// import, or a clone with the same certificate, would count as the new agent.
func (s *importSide) disconnected(ctx context.Context, name string, timeout time.Duration) error {
	err := poll(ctx, timeout, "wait until agent "+name+" is disconnected", func(ctx context.Context) (bool, error) {
		now, err := agents{s.cluster}.get(ctx, name)
		return err == nil && !now.Status.Connected, nil
	})
	if err != nil {
		return fmt.Errorf("%w; if it stays connected, another cluster uses its certificate", err)
	}
	return nil
}

func (p *Program) importRevertCommand() *cobra.Command {
	var o importOptions
	cmd := p.withYes(&cobra.Command{
		Use:   "revert [AGENT]",
		Short: "Start the existing program again",
		Long: `Stops the new principal or, with AGENT, the new agent of a workload cluster, and waits until its pods are gone. Then it
starts the existing program with its former number of replicas. On the hub, it also restores the cluster Secrets from
their copies. If a user has edited their data since the import, nothing is changed without --accept-risks. Agent
objects stay, and the existing programs do not know them.

An existing agent connects only to the existing principal. To revert an installation, revert the hub and each agent,
in any order.`,
		Example: `  argocd-agentctl import revert w1 --agent-context w1
  argocd-agentctl import revert --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.importSideOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			if s.old == nil {
				return fmt.Errorf("%s has no Deployment of the existing argocd-agent: the import was confirmed, or there was none", s)
			}
			if err := p.askConfirmation(fmt.Sprintf("start the existing %s of %s again", s.role, s)); err != nil {
				return err
			}
			return s.revert(cmd.Context(), &o, p.progress())
		},
	})
	o.addTimeout(cmd)
	cmd.Flags().BoolVar(&o.acceptRisks, "accept-risks", false, "Continue although cluster Secrets were edited since the import. These edits are lost.")
	return cmd
}

func (p *Program) importConfirmCommand() *cobra.Command {
	return p.withYes(&cobra.Command{
		Use:   "confirm [AGENT]",
		Short: "Delete what only the existing program used",
		Long: `Lists the objects of a hub or, with AGENT, of a workload cluster that only the existing program used, and asks. Then it
deletes them. The existing program can no longer be started. Services, certificates, cluster Secrets, Applications and
projects are not deleted.

The agents must be in sync. For the hub, this applies to all agents.`,
		Example: `  argocd-agentctl import confirm w1 --agent-context w1
  argocd-agentctl import confirm`,
		RunE: func(cmd *cobra.Command, args []string) error { return p.importConfirm(cmd.Context(), args) },
	})
}

func (p *Program) importConfirm(ctx context.Context, args []string) error {
	s, err := p.importSideOf(ctx, args)
	if err != nil {
		return err
	}
	switch {
	case s.old == nil:
		p.say("Nothing to delete in %s.", s)
		return nil
	case replicas(s.old) > 0 || s.ours == nil || s.ours.Status.ReadyReplicas == 0:
		return fmt.Errorf("the new %s is not ready in %s: import it first", s.role, s)
	}
	if err := s.inspect(ctx, nil); err != nil {
		return err
	}
	a, err := p.agents()
	if err != nil {
		return err
	}
	list, err := a.list(ctx)
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(agent v1alpha1.Agent) bool { return s.agent != "" && agent.Name != s.agent })
	if s.agent != "" && len(list.Items) == 0 {
		return fmt.Errorf("agent %q not found in %s", s.agent, a.cluster)
	}
	for i := range list.Items {
		if agent := &list.Items[i]; !isSynced(agent) {
			return fmt.Errorf("agent %s is not in sync (%s): import it first, or delete the Agent", agent.Name, agentrows.StateOf(agent))
		}
	}
	found, err := s.leftovers(ctx)
	if err != nil {
		return err
	}
	v := view{headings: []string{"OBJECT", "ACTION", "DETAIL"}}
	for _, one := range found {
		row := []cell{c(one.kind + " " + one.name), {"delete", red}, c("")}
		if one.user != "" {
			row[1], row[2] = c(actKeep), c(one.user+" uses it")
		}
		v.rows = append(v.rows, row)
	}
	found = slices.DeleteFunc(found, func(l leftover) bool { return l.user != "" })
	if err := p.show(v); err != nil {
		return err
	}
	if err := p.askConfirmation("delete these objects of " + s.String()); err != nil {
		return err
	}
	// The Deployment is the first in the list and the last to go, so that an interrupted command can be repeated.
	for _, one := range slices.Backward(found) {
		if err := s.remove(ctx, one); err != nil {
			return err
		}
	}
	p.say("Deleted %s.", pluralize(len(found), "object"))
	return nil
}
