package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// This file decides about upgrades. It does no I/O.

// States of an agent in an upgrade, in addition to the phases that agents report.
const (
	upgradePlanned   = "Planned"   // it is in a wave
	upgradeUpToDate  = "UpToDate"  // it runs the version already
	upgradeSkipped   = "Skipped"   // it cannot be upgraded from the hub, or not now
	upgradeOffline   = "Offline"   // it is upgraded when it returns, if all waves succeed
	upgradeRequested = "Requested" // the hub has asked it
	upgradeTimedOut  = "TimedOut"  // it did not finish in time
)

// upgradeRow is one agent in the output.
type upgradeRow struct {
	Wave    int    `json:"wave,omitempty"`
	Agent   string `json:"agent"`
	Version string `json:"version"` // that it runs
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// upgradePlan has the agents of an upgrade.
type upgradePlan struct {
	current []string     // agents that run the version
	begun   []string     // agents that were asked in an earlier run with the same ID
	waiting []string     // agents to ask, in order
	offline []string     // agents to ask at the end
	rows    []upgradeRow // agents that are not asked in a wave, with the reason
}

// planUpgrade sorts agents. id is that of the upgrade to continue; empty: a new one begins.
func planUpgrade(agents []v1alpha1.Agent, to, id string) upgradePlan {
	var plan upgradePlan
	slices.SortFunc(agents, func(a, b v1alpha1.Agent) int { return cmp.Compare(a.Name, b.Name) })
	for i := range agents {
		a := &agents[i]
		state, reason := upgradeClass(a, to, id)
		switch state {
		case upgradePlanned:
			plan.waiting = append(plan.waiting, a.Name)
			continue
		case upgradeRequested:
			plan.begun = append(plan.begun, a.Name)
			continue
		case upgradeUpToDate:
			plan.current = append(plan.current, a.Name)
		case upgradeOffline:
			plan.offline = append(plan.offline, a.Name)
		}
		plan.rows = append(plan.rows, upgradeRow{Agent: a.Name, Version: a.Status.Version, State: state, Message: reason})
	}
	return plan
}

// upgradeClass returns the state of an agent at the start of an upgrade, and why.
func upgradeClass(a *v1alpha1.Agent, to, id string) (state, reason string) {
	u := a.Status.Upgrade
	asked := id != "" && a.Spec.Upgrade != nil && a.Spec.Upgrade.ID == id
	switch {
	case a.DeletionTimestamp != nil, a.Annotations[v1alpha1.RetireAnnotation] != "", a.Spec.Suspended:
		return upgradeSkipped, "it is suspended, retired or being deleted"
	case asked && u != nil && u.ID == id && upgradeHasFailed(u.Phase):
		return upgradeSkipped, u.Phase + " in this upgrade: " + u.Message
	case asked && a.Status.Connected:
		return upgradeRequested, ""
	case v1alpha1.SameVersion(a.Status.Version, to) && a.Status.Connected:
		return upgradeUpToDate, ""
	case u == nil && a.Status.Connected:
		return upgradeSkipped, fmt.Sprintf("release %s does not support upgrades from the hub: upgrade it with the tool that installed it", cmp.Or(a.Status.Version, "unknown"))
	case u == nil:
		return upgradeSkipped, "it is not connected, and its release is not known to support upgrades from the hub"
	case u.Phase == v1alpha1.UpgradeRefused:
		return upgradeSkipped, u.Message
	case u.Phase == v1alpha1.UpgradePreparing || u.Phase == v1alpha1.UpgradeUpgrading:
		return upgradeSkipped, "upgrade " + u.ID + " is in progress: continue it with --resume, or wait"
	case !a.Status.Connected:
		return upgradeOffline, "it is not connected: it is asked after all waves, and upgrades when it returns"
	case meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionHeld):
		return upgradeSkipped, "something waits for a confirmation: run `argocd-agentctl pending`"
	case !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionSynced):
		return upgradeSkipped, "it is not in sync: " + conditionMessage(a, v1alpha1.ConditionSynced)
	}
	return upgradePlanned, ""
}

func upgradeHasFailed(phase string) bool {
	return phase == v1alpha1.UpgradeRolledBack || phase == v1alpha1.UpgradeFailed || phase == v1alpha1.UpgradeRefused
}

// upgradeResult is the progress of an agent that was asked.
type upgradeResult int

const (
	upgradePending upgradeResult = iota
	upgradeDone
	upgradeBroken
)

// upgradeProgress returns the progress of an agent. It is done only if the agent runs the version, and both sides have proved
// in its session that they are in sync. nil: the Agent was deleted.
func upgradeProgress(a *v1alpha1.Agent, to, id string) (result upgradeResult, state, reason string) {
	if a == nil {
		return upgradeBroken, upgradeSkipped, "the Agent was deleted"
	}
	u := a.Status.Upgrade
	switch {
	case a.Spec.Suspended || a.DeletionTimestamp != nil:
		return upgradeBroken, upgradeSkipped, "it was suspended or deleted during the upgrade"
	case u == nil || u.ID != id:
		if !a.Status.Connected {
			return upgradePending, upgradeRequested, "it is not connected"
		}
		return upgradePending, upgradeRequested, ""
	case upgradeHasFailed(u.Phase):
		return upgradeBroken, u.Phase, u.Message
	case u.Phase != v1alpha1.UpgradeSucceeded:
		return upgradePending, u.Phase, u.Message
	case !v1alpha1.SameVersion(a.Status.Version, to):
		return upgradeBroken, v1alpha1.UpgradeFailed, "it reports version " + a.Status.Version
	case meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionHeld):
		return upgradeBroken, v1alpha1.UpgradeFailed, "something waits for a confirmation: run `argocd-agentctl pending`"
	case !a.Status.Connected:
		return upgradePending, v1alpha1.UpgradeSucceeded, "it is not connected"
	case !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionSynced):
		return upgradePending, v1alpha1.UpgradeSucceeded, "it is not in sync: " + conditionMessage(a, v1alpha1.ConditionSynced)
	}
	return upgradeDone, v1alpha1.UpgradeSucceeded, u.Message
}

// upgradeWaves is the value of --wave: sizes that include the waves before.
type upgradeWaves []string

// parseWaves checks the sizes: numbers or percentages, ascending.
func parseWaves(text string) (upgradeWaves, error) {
	waves := upgradeWaves(strings.Split(text, ","))
	last := 0
	for _, size := range waves {
		digits, percent := strings.CutSuffix(size, "%")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || percent && n > 100 {
			return nil, cmdline.UsageErrorf("--wave %q: must be numbers of agents or percentages, such as 5%%,25%%,100%%", text)
		}
		at := waves.target(size, 1_000_000)
		if at < last && strings.HasSuffix(size, "%") == strings.HasSuffix(waves[0], "%") {
			return nil, cmdline.UsageErrorf("--wave %q: each wave includes those before, so that it cannot be smaller", text)
		}
		last = at
	}
	return waves, nil
}

// target returns the number of agents after a wave.
func (upgradeWaves) target(size string, total int) int {
	digits, percent := strings.CutSuffix(size, "%")
	n, _ := strconv.Atoi(digits)
	if percent {
		n = int(math.Ceil(float64(n) * float64(total) / 100))
	}
	return min(n, total)
}

// split returns the agents to ask in each wave. Agents that run the version or were asked before count.
func (w upgradeWaves) split(plan upgradePlan) [][]string {
	before := len(plan.current) + len(plan.begun)
	total, taken := before+len(plan.waiting), 0
	waves := make([][]string, 0, len(w))
	for _, size := range w {
		until := max(w.target(size, total)-before, taken)
		waves = append(waves, plan.waiting[taken:until])
		taken = until
	}
	return waves
}

// resumedID returns the newest upgrade to a version that some agents were asked for; empty: none.
func resumedID(agents []v1alpha1.Agent, to string) string {
	id := ""
	for i := range agents {
		if u := agents[i].Spec.Upgrade; u != nil && v1alpha1.SameVersion(u.Version, to) {
			id = max(id, u.ID)
		}
	}
	return id
}

// upgradeID returns the ID of a new upgrade. Later ones are greater.
func upgradeID(now time.Time) string { return now.UTC().Format("20060102-150405.000") }
