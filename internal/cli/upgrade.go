package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// upgradeOptions are the flags of upgrade.
type upgradeOptions struct {
	to         string
	repository string
	digest     string
	wave       string
	selector   agentSelector
	timeout    time.Duration
	halt       bool
	dryRun     bool
	resume     bool
	output     string
}

func (p *Program) upgradeCommand() *cobra.Command {
	var o upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade agents in waves",
		Long: `Asks agents to run another version of themselves, in waves. A wave includes the waves before. The next wave begins when
all agents of a wave run the version and are in sync with the hub by their digests.

An agent follows only if an AgentPolicy of its cluster allows it (spec.upgrade), and if no other tool manages its
Deployment, such as Helm or Argo CD. Other agents are listed with the reason. If a new agent is not in sync within
--timeout, a Job on its cluster restores the old version, also if the hub cannot be reached.

The command stores each request in spec.upgrade of the Agent. If it is interrupted, continue with --resume. Agents that
are not connected are asked after all waves have succeeded, and upgrade when they return.

Output is a table, or one JSON object per line if stdout is not a terminal. The exit code is 3 if an agent was not
upgraded.`,
		Example: `  argocd-agentctl upgrade --to v0.3.0 --wave 5%,25%,100% --halt-on-divergence
  argocd-agentctl upgrade --to v0.3.0 -l env=test --dry-run
  argocd-agentctl upgrade --to v0.3.0 --wave 5%,25%,100% --halt-on-divergence --resume`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			waves, err := o.check()
			if err != nil {
				return err
			}
			a, err := p.agents()
			if err != nil {
				return err
			}
			return p.upgrade(cmd.Context(), a, &o, waves)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`VERSION` that agents should run, which is also the tag of the image. Required.")
	f.StringVar(&o.repository, "image", "", "`REPOSITORY` of the image, without tag. If unset, that of each agent.")
	f.StringVar(&o.digest, "digest", "", "`DIGEST` of the image (sha256:…). Required for agents that have their image by digest.")
	f.StringVar(&o.wave, "wave", "100%", "`SIZES` of the waves, as numbers of agents or percentages, such as 5%,25%,100%.")
	f.BoolVar(&o.halt, "halt-on-divergence", false, "Stop if an agent is not in sync after its upgrade, is rolled back, or fails.")
	o.selector.addFlag(f)
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "Time in which a new agent must be in sync, from 10s to 1h. After that, the old version is restored.")
	f.BoolVar(&o.dryRun, "dry-run", false, "Print the waves and change nothing.")
	f.BoolVar(&o.resume, "resume", false, "Continue the last upgrade to this version. Agents that failed in it are not asked again.")
	f.VarP(cmdline.Choice(&o.output, "", asTable, asJSON), "output", "o", "Output format. If unset, a table on a terminal, otherwise JSON.")
	return cmd
}

// check checks the flags and returns the waves.
func (o *upgradeOptions) check() (upgradeWaves, error) {
	switch {
	case o.to == "":
		return nil, cmdline.UsageErrorf("--to is missing: set the version that agents should run, such as v0.3.0")
	case !v1alpha1.IsImageTag(o.to):
		return nil, cmdline.UsageErrorf("--to %q: must be a version that is also a tag, such as v0.3.0", o.to)
	case o.digest != "" && !v1alpha1.IsImageDigest(o.digest):
		return nil, cmdline.UsageErrorf("--digest %q: must be sha256: and 64 hexadecimal digits", o.digest)
	case o.repository != "" && !v1alpha1.IsImageRepository(o.repository):
		return nil, cmdline.UsageErrorf("--image %q: must be a repository without tag", o.repository)
	case o.timeout < 10*time.Second || o.timeout > time.Hour:
		return nil, cmdline.UsageErrorf("--timeout %s: must be 10s to 1h", o.timeout)
	}
	return parseWaves(o.wave)
}

// upgrade runs an upgrade with a watch of the Agents.
func (p *Program) upgrade(ctx context.Context, a agents, o *upgradeOptions, waves upgradeWaves) error {
	list, err := a.list(ctx) // reports missing permissions
	if err != nil {
		return err
	}
	run := &upgradeRun{p: p, upgradeOptions: o, waves: waves, initial: list.Items, changed: make(chan struct{}, 1), ask: func(ctx context.Context, name string, u *v1alpha1.Upgrade) error {
		_, err := a.patch(ctx, "upgrade agent "+name, name, map[string]any{"spec": map[string]any{"upgrade": upgradePatch(u)}})
		return err
	}}
	if o.dryRun {
		return run.run(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	notify := func() {
		select {
		case run.changed <- struct{}{}:
		default:
		}
	}
	watch, err := watchAgents(ctx, a, watcher{changed: func(*v1alpha1.Agent) { notify() }, deleted: func(string) { notify() }, failed: func(string) {}})
	if err != nil {
		stop()
		return err
	}
	defer watch.wait()
	defer stop()
	run.agents, run.synced = watch.agents, watch.synced
	return run.run(ctx)
}

// upgradePatch returns a merge patch that sets all fields of a request, or removes it.
func upgradePatch(u *v1alpha1.Upgrade) any {
	if u == nil {
		return nil
	}
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"id": u.ID, "version": u.Version, "timeout": u.Timeout, "repository": orNull(u.Repository), "digest": orNull(u.Digest)}
}

// upgradeRun is one run of upgrade.
type upgradeRun struct {
	p *Program
	*upgradeOptions
	waves   upgradeWaves
	initial []v1alpha1.Agent
	agents  func() []v1alpha1.Agent // as of now
	synced  func() bool             // reports whether agents is complete
	changed chan struct{}           // of one: an Agent has changed
	ask     func(ctx context.Context, agent string, u *v1alpha1.Upgrade) error

	id    string
	asked map[string]int // agent → wave
	rows  map[string]upgradeRow
}

// Times of a wave, in addition to the timeout: the Job of an agent starts before, and the restored agent connects after.
const (
	upgradeSlack = 5 * time.Minute
	upgradeTick  = time.Second
)

func (r *upgradeRun) run(ctx context.Context) error {
	selected := slices.DeleteFunc(r.initial, func(a v1alpha1.Agent) bool { return !r.selector.matches(&a) })
	if r.resume {
		if r.id = resumedID(selected, r.to); r.id == "" {
			return fmt.Errorf("no upgrade to %s to resume: run the command without --resume", r.to)
		}
	}
	plan := planUpgrade(selected, r.to, r.id)
	if r.id == "" {
		r.id = upgradeID(r.p.Now())
	}
	waves := r.waves.split(plan)
	r.asked, r.rows = map[string]int{}, map[string]upgradeRow{}
	if err := r.printPlan(plan, waves, selected); err != nil || r.dryRun {
		return err
	}
	for _, name := range plan.begun {
		r.asked[name] = 1
	}
	left := slices.ContainsFunc(plan.rows, func(row upgradeRow) bool { return row.State == upgradeSkipped })
	for i, names := range waves {
		if len(names) == 0 && (i > 0 || len(plan.begun) == 0) {
			continue
		}
		r.heading("Wave %d of %d: %s", i+1, len(waves), pluralize(len(names), "agent"))
		for _, name := range names {
			if err := r.ask(ctx, name, r.request()); err != nil {
				return err
			}
			r.asked[name] = i + 1
		}
		broken, err := r.wait(ctx)
		if err != nil {
			return err
		}
		r.table(i + 1)
		left = left || len(broken) > 0
		if len(broken) > 0 && r.halt {
			return r.halted(ctx, i+1, broken)
		}
	}
	size := r.waves[len(r.waves)-1]
	if done := len(plan.current) + len(plan.begun) + len(plan.waiting); r.waves.target(size, done) < done {
		r.p.warn("The last wave is %s. To upgrade the others, run the command again with --resume and a larger wave.", size)
		left = true
	} else if err := r.askOffline(ctx, plan.offline); err != nil {
		return err
	}
	if left || len(plan.offline) > 0 {
		return findingsError{}
	}
	return nil
}

func (r *upgradeRun) request() *v1alpha1.Upgrade {
	return &v1alpha1.Upgrade{ID: r.id, Version: r.to, Repository: r.repository, Digest: r.digest, Timeout: r.timeout.String()}
}

// askOffline stores the request for agents that are not connected.
func (r *upgradeRun) askOffline(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := r.ask(ctx, name, r.request()); err != nil {
			return err
		}
		r.print(upgradeRow{Agent: name, Version: r.rows[name].Version, State: upgradeOffline, Message: "asked: it upgrades when it returns"})
	}
	return nil
}

// wait waits until all agents that were asked are done, or the time of a wave is over. It returns those that are not done.
func (r *upgradeRun) wait(ctx context.Context) (broken []upgradeRow, err error) {
	end := r.p.Now().Add(r.timeout + upgradeSlack)
	for {
		var pending []upgradeRow
		if broken, pending = r.look(); len(pending) == 0 && r.synced() {
			return broken, nil
		}
		if r.p.Now().After(end) {
			for _, row := range pending {
				row.State, row.Message = upgradeTimedOut, strings.TrimSpace(row.State+" after "+(r.timeout+upgradeSlack).String()+". "+row.Message)
				r.print(row)
				broken = append(broken, row)
			}
			return broken, nil
		}
		select {
		case <-ctx.Done():
			r.p.warn("Interrupted. Agents that were asked continue. To continue the upgrade, run the command again with --resume.")
			return nil, ctx.Err()
		case <-r.changed:
		case <-time.After(upgradeTick):
		}
	}
}

// look prints what has changed, and returns the agents that have failed and those that are not done.
func (r *upgradeRun) look() (broken, pending []upgradeRow) {
	if !r.synced() {
		return nil, nil
	}
	now := map[string]*v1alpha1.Agent{}
	for _, a := range r.agents() {
		now[a.Name] = &a
	}
	for _, name := range slices.Sorted(maps.Keys(r.asked)) {
		result, state, reason := upgradeProgress(now[name], r.to, r.id)
		row := upgradeRow{Wave: r.asked[name], Agent: name, State: state, Message: reason}
		if a := now[name]; a != nil {
			row.Version = a.Status.Version
		}
		if r.rows[name] != row {
			r.print(row)
		}
		switch result {
		case upgradeBroken:
			broken = append(broken, row)
		case upgradePending:
			pending = append(pending, row)
		}
	}
	return broken, pending
}

// halted withdraws requests that agents have not begun, and prints how to continue.
func (r *upgradeRun) halted(ctx context.Context, wave int, broken []upgradeRow) error {
	for _, a := range r.agents() {
		if _, asked := r.asked[a.Name]; asked && a.Spec.Upgrade != nil && a.Spec.Upgrade.ID == r.id && (a.Status.Upgrade == nil || a.Status.Upgrade.ID != r.id) {
			if err := r.ask(ctx, a.Name, nil); err != nil {
				return err
			}
		}
	}
	r.p.warn("Halted in wave %d:", wave)
	for _, row := range broken {
		r.p.warn("  %s is %s: %s", row.Agent, row.State, row.Message)
	}
	r.p.warn("To continue without these agents, run the command again with --resume. To try them again, run it without --resume.")
	r.p.warn("To go back, run it with --to and the old version. AgentPolicies must allow it (spec.upgrade.downgrade).")
	return findingsError{}
}

func (r *upgradeRun) json() bool {
	return r.output == asJSON || r.output == "" && !r.p.Screen.Terminal
}

// print prints one agent whose state has changed.
func (r *upgradeRun) print(row upgradeRow) {
	r.rows[row.Agent] = row
	if r.json() {
		encoder := json.NewEncoder(r.p.Stdout)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(row) // stdout
		return
	}
	r.p.say("  %s: %s", row.Agent, strings.TrimSuffix(row.State+". "+row.Message, ". "))
}

func (r *upgradeRun) heading(format string, args ...any) {
	if !r.json() {
		r.p.say(format, args...)
	}
}

// table prints all agents of a wave.
func (r *upgradeRun) table(wave int) {
	if r.json() {
		return
	}
	var rows []upgradeRow
	for _, name := range slices.Sorted(maps.Keys(r.asked)) {
		if r.asked[name] == wave {
			rows = append(rows, r.rows[name])
		}
	}
	r.printTable(rows)
}

func (r *upgradeRun) printTable(rows []upgradeRow) {
	var cells [][]cell
	for _, row := range rows {
		wave := ""
		if row.Wave > 0 {
			wave = fmt.Sprint(row.Wave)
		}
		state := cell{row.State, plain}
		switch {
		case row.State == v1alpha1.UpgradeSucceeded || row.State == upgradeUpToDate:
			state.color = green
		case upgradeHasFailed(row.State) || row.State == upgradeTimedOut:
			state.color = red
		case row.State == upgradeSkipped || row.State == upgradeOffline:
			state.color = yellow
		}
		cells = append(cells, []cell{c(wave), c(row.Agent), c(row.Version), state, c(row.Message)})
	}
	if len(cells) > 0 {
		_, _ = io.WriteString(r.p.Stdout, r.p.table([]string{"WAVE", "AGENT", "VERSION", "STATE", "MESSAGE"}, cells)) // stdout
	}
}

// printPlan prints all agents before anything changes.
func (r *upgradeRun) printPlan(plan upgradePlan, waves [][]string, agents []v1alpha1.Agent) error {
	if len(agents) == 0 {
		return fmt.Errorf("no agents selected: run `argocd-agentctl agent list`")
	}
	versions := map[string]string{}
	for i := range agents {
		versions[agents[i].Name] = agents[i].Status.Version
	}
	var rows []upgradeRow
	for i, names := range append([][]string{plan.begun}, waves...) {
		state := upgradePlanned
		if i == 0 {
			state = upgradeRequested
		}
		for _, name := range names {
			rows = append(rows, upgradeRow{Wave: max(i, 1), Agent: name, Version: versions[name], State: state})
		}
	}
	rows = append(rows, plan.rows...)
	for _, row := range rows {
		if r.rows[row.Agent] = row; r.json() {
			r.print(row)
		}
	}
	if !r.json() {
		r.heading("Upgrade %s to %s:", r.id, r.to)
		r.printTable(rows)
	}
	return nil
}
