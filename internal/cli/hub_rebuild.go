package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// rebuildFlags are the flags of hub rebuild.
type rebuildFlags struct {
	apply, confirm bool
	identity       string
	without, skip  []string
	timeout        time.Duration
	search         searchFlags
}

func (p *Program) hubRebuildCommand() *cobra.Command {
	var f rebuildFlags
	cmd := p.withYes(p.withOutput(&cobra.Command{
		Use:   "rebuild",
		Short: "Restore the objects of a lost hub from its agents",
		Long: `Restores the objects of a hub that was lost and has no backup. Managed agents have replicas of its Applications, their
parts of its AppProjects, GPG keys, settings, and repositories. Autonomous agents send their objects by themselves.

Install Argo CD and the principal on an empty hub with the CA of the lost one (Secret argocd-agent-ca), and register
the agents under their names. Without that CA agents do not connect, and each must join again. The principal needs
--search-port. Then run these steps:

  1. without a flag, the plan is shown and nothing is changed.
  2. --apply gives the hub the identity of the lost one and creates the objects. Agents hold updates, deletions and
     commands.
  3. without a flag again: every object exists, and there is no difference.
  4. --confirm ends the hold on all agents.

Objects keep the UIDs under which agents know them, so that no workload and no replica changes. ACTION is one of:

  create  does not exist on the hub
  claim   exists on the hub, and becomes the source of the replicas
  exists  was restored before
  skip    is not restored, see DETAIL
  refuse  is not certain. Correct it, or name it with --skip and create it by hand

A difference is something that an agent would change after the confirmation. Differences prevent --apply and --confirm.
The exit code is 3 if there is a difference or a refused object.`,
		Example: `  argocd-agentctl hub rebuild
  argocd-agentctl hub rebuild --apply
  argocd-agentctl hub rebuild -o json
  argocd-agentctl hub rebuild --confirm

  # A workload cluster is gone, and a project must be written by hand
  argocd-agentctl hub rebuild --apply --without w7 --skip appproject/argocd/shop`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.apply && f.confirm {
				return cmdline.UsageErrorf("--apply contradicts --confirm: apply, compare, then confirm")
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			plan, err := p.planRebuild(cmd.Context(), hub, f)
			switch {
			case err != nil:
				return err
			case f.apply:
				return p.applyRebuild(cmd.Context(), plan)
			case f.confirm:
				return p.confirmRebuild(cmd.Context(), plan)
			}
			return p.showRebuild(plan)
		},
	}))
	flags := cmd.Flags()
	flags.BoolVar(&f.apply, "apply", false, "Create the objects on the hub.")
	flags.BoolVar(&f.confirm, "confirm", false, "End the hold on all agents, if nothing differs.")
	flags.StringVar(&f.identity, "identity", "", "`UID` of the lost hub. Required if agents have objects of several hubs.")
	flags.StringSliceVar(&f.without, "without", nil, "`AGENTS` that are left out, for example because their clusters are gone.")
	flags.StringSliceVar(&f.skip, "skip", nil, "Objects that are not restored, as `KIND/NAMESPACE/NAME`.")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Timeout of the wait for agents after the hub has changed its identity.")
	f.search.addServer(flags)
	return cmd
}

// notRestored is what agents do not have.
var notRestored = []string{
	"AppProjects: roles, permitOnlyProjectScopedClusters, and patterns that match several clusters. Each agent is named instead",
	"Secrets: repositories that no agent needs, cluster Secrets of other clusters, accounts and SSO",
	"ApplicationSets, Applications of the hub itself, and everything that is not replicated to an agent",
	"Applications: owner references, finalizers that do not delete resources, and histories until agents send their status",
	"settings of Argo CD that are not replicated: argocd-cm, argocd-rbac-cm, notifications",
}

// showRebuild prints the plan.
func (p *Program) showRebuild(plan *rebuildPlan) error {
	v := view{object: plan}
	agents := [][]cell{}
	for _, a := range plan.Agents {
		agents = append(agents, []cell{c(a.Name), c(a.Mode), {a.State, map[string]color{agentRead: green, agentAutonomous: plain}[a.State]}, c(fmt.Sprint(a.Objects)), c(a.Detail)})
	}
	objects := [][]cell{}
	for _, o := range plan.Objects {
		v.names = append(v.names, o.name())
		color := map[string]color{rebuildRefuse: red, rebuildSkip: yellow, rebuildExists: faint}[o.Action]
		objects = append(objects, []cell{c(o.Kind), c(o.Namespace), c(o.Name), {o.Action, color}, c(strings.Join(o.Agents, " ")), c(o.Detail)})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Identity of the lost hub: %s\n\n", printable(plan.Identity))
	b.WriteString(p.table([]string{"AGENT", "MODE", "STATE", "OBJECTS", "DETAIL"}, agents))
	if len(objects) > 0 {
		b.WriteString("\n" + p.table([]string{"KIND", "NAMESPACE", "NAME", "ACTION", "AGENTS", "DETAIL"}, objects))
	}
	for _, d := range plan.Differences {
		fmt.Fprintf(&b, "\nagent %s: %s %s  %s on the %s\n", d.Agent, d.Kind, printable(d.Name), p.paint(red, d.State), d.On)
		for _, field := range d.Fields {
			fmt.Fprintf(&b, "  %s\n    %s %s\n    %s %s\n", printable(field.Path), p.paint(faint, "hub    "), printable(field.Hub), p.paint(faint, "cluster"), printable(field.Cluster))
		}
	}
	b.WriteString("\nNot restored, because agents do not have it:\n")
	for _, line := range plan.NotRestored {
		fmt.Fprintf(&b, "  - %s\n", printable(line))
	}
	for _, line := range plan.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", printable(line))
	}
	fmt.Fprintf(&b, "\n%d items are in sync with agents after the rebuild, %d differ\n", plan.InSync, len(plan.Differences))
	v.text = b.String()
	if err := p.show(v); err != nil {
		return err
	}
	if plan.blocked() != nil {
		return findingsError{}
	}
	return nil
}

// applyRebuild gives the hub its former identity and creates the objects.
func (p *Program) applyRebuild(ctx context.Context, plan *rebuildPlan) error {
	if err := plan.blocked(); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	var todo []*rebuildObject
	for i := range plan.Objects {
		if o := &plan.Objects[i]; o.Action == rebuildCreate || o.Action == rebuildClaim {
			todo = append(todo, o)
		}
	}
	if err := p.askConfirmation(fmt.Sprintf("give the hub the identity %s and write %s", plan.Identity, pluralize(len(todo), "object"))); err != nil {
		return err
	}
	if err := p.takeIdentity(ctx, plan); err != nil {
		return err
	}
	namespaces := map[string]bool{plan.hub.namespace: true}
	for i, o := range todo {
		if !namespaces[o.Namespace] {
			namespaces[o.Namespace] = true
			if err := plan.hub.raw.CreateNamespace(ctx, o.Namespace, nil); err != nil {
				return fmt.Errorf("create namespace %s: %w", o.Namespace, plan.hub.explain(err))
			}
		}
		var err error
		if o.Action == rebuildCreate {
			_, err = plan.hub.raw.Create(ctx, o.ref, json.RawMessage(o.object.Raw()))
		} else {
			_, err = plan.hub.raw.Update(ctx, o.ref, o.object)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w. %d of %d objects were written; run the command again", o.Action, o.name(), plan.hub.explain(err), i, len(todo))
		}
		if n := i + 1; n%100 == 0 || n == len(todo) {
			p.warn("Wrote %d of %d objects.", n, len(todo))
		}
	}
	after, err := p.planRebuild(ctx, plan.hub, plan.flags)
	if err != nil {
		return fmt.Errorf("all objects were written, and the comparison failed: %w", err)
	}
	if err := p.showRebuild(after); err != nil {
		return err
	}
	p.warn("Agents hold updates, deletions and commands. Compare, then run: argocd-agentctl hub rebuild --confirm")
	return nil
}

// takeIdentity gives the hub the identity of the lost one, and waits until agents have sessions with it. Before that, agents
// would take restored objects for those of another hub.
func (p *Program) takeIdentity(ctx context.Context, plan *rebuildPlan) error {
	info, err := plan.hub.readHub(ctx)
	if err != nil {
		return err
	}
	if info.state.Role == hubstate.Standby {
		return errors.New("nothing was changed: this hub is a standby. Promote it instead, see `argocd-agentctl hub promote`")
	}
	if info.state.Identity != plan.Identity {
		state := info.state
		state.Identity = plan.Identity
		state.Generation = plan.nextGeneration(state.Generation)
		if err := info.write(ctx, state); err != nil {
			return err
		}
		p.warn("The hub has the identity %s now. The principal restarts.", plan.Identity)
	}
	ctx, cancel := context.WithTimeout(ctx, plan.flags.timeout)
	defer cancel()
	for {
		waiting, err := plan.otherSessions(ctx)
		if err == nil && len(waiting) == 0 {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("agents have no session with the new identity yet: %s", shortList(waiting, 8))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w. No object was written; run the command again", err)
		case <-time.After(time.Second):
		}
	}
}

// confirmRebuild ends the holds that agents have because the store of the hub is new.
func (p *Program) confirmRebuild(ctx context.Context, plan *rebuildPlan) error {
	if err := plan.blocked(); err != nil {
		return fmt.Errorf("nothing was confirmed: %w", err)
	}
	for _, o := range plan.Objects {
		if o.Action == rebuildCreate || o.Action == rebuildClaim {
			return fmt.Errorf("nothing was confirmed: %s was not written yet: run `argocd-agentctl hub rebuild --apply`", o.name())
		}
	}
	holds := map[string]string{}
	for _, a := range plan.Agents {
		if a.State != agentRead {
			continue
		}
		if a.session != plan.Identity {
			return fmt.Errorf("nothing was confirmed: agent %s has no session with the identity %s", a.Name, plan.Identity)
		}
		if a.storeHold != "" {
			holds[a.Name] = a.storeHold
		}
	}
	if len(holds) == 0 {
		p.say("No agent holds anything because of the new hub.")
		return nil
	}
	if err := p.askConfirmation(fmt.Sprintf("accept the store of this hub on %s", pluralize(len(holds), "agent"))); err != nil {
		return err
	}
	for _, a := range plan.Agents {
		if id := holds[a.Name]; id != "" {
			if err := p.confirmStore(ctx, agents{plan.hub}, a.Name, id); err != nil {
				return err
			}
			p.say("Confirmed for %s", a.Name)
		}
	}
	return nil
}

// confirmStore confirms the hold of an agent, if its Agent shows it: an ID covers what users can see.
func (p *Program) confirmStore(ctx context.Context, a agents, agent, id string) error {
	object, err := a.get(ctx, agent)
	if err != nil {
		return err
	}
	for _, held := range holdsOf(object) {
		if held.ID == id {
			_, err := a.patch(ctx, "confirm "+id, agent, annotate(kind.Confirmation, id))
			return err
		}
	}
	return errors.New("Agent " + agent + " does not show the hold " + id + " yet: run the command again")
}
