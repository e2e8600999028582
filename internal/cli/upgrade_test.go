package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// upgradable returns an agent that is connected and in sync and can be upgraded.
func upgradable(name, version string) v1alpha1.Agent {
	var a v1alpha1.Agent
	a.Name, a.Status.Version, a.Status.Connected = name, version, true
	a.Status.Upgrade = &v1alpha1.UpgradeStatus{Phase: v1alpha1.UpgradeReady}
	setCondition(&a, v1alpha1.ConditionSynced, metav1.ConditionTrue)
	return a
}

func setCondition(a *v1alpha1.Agent, of string, status metav1.ConditionStatus) {
	a.Status.Conditions = slices.DeleteFunc(slices.Clone(a.Status.Conditions), func(c metav1.Condition) bool { return c.Type == of })
	a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{Type: of, Status: status, Message: of + " is " + string(status)})
}

func reportsUpgrade(a *v1alpha1.Agent, id, phase string) {
	a.Status.Upgrade = &v1alpha1.UpgradeStatus{ID: id, Phase: phase, Message: "because"}
}

func TestUpgradeClass_DecidesAboutEachAgent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Agent)
		id     string // to resume
		state  string
		reason string
	}{
		"in sync":                  {nil, "", upgradePlanned, ""},
		"rolled back before":       {func(a *v1alpha1.Agent) { reportsUpgrade(a, "0", v1alpha1.UpgradeRolledBack) }, "", upgradePlanned, ""},
		"runs the version":         {func(a *v1alpha1.Agent) { a.Status.Version = "0.3.0" }, "", upgradeUpToDate, ""},
		"suspended":                {func(a *v1alpha1.Agent) { a.Spec.Suspended = true }, "", upgradeSkipped, "suspended"},
		"retired":                  {func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "x"} }, "", upgradeSkipped, "retired"},
		"older release":            {func(a *v1alpha1.Agent) { a.Status.Upgrade = nil }, "", upgradeSkipped, "release v0.2.0 does not support"},
		"offline, older release":   {func(a *v1alpha1.Agent) { a.Status.Upgrade, a.Status.Connected = nil, false }, "", upgradeSkipped, "not connected"},
		"offline":                  {func(a *v1alpha1.Agent) { a.Status.Connected = false }, "", upgradeOffline, "when it returns"},
		"offline with the version": {func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Version = false, "v0.3.0" }, "", upgradeOffline, "when it returns"},
		"refused":                  {func(a *v1alpha1.Agent) { reportsUpgrade(a, "", v1alpha1.UpgradeRefused) }, "", upgradeSkipped, "because"},
		"in progress":              {func(a *v1alpha1.Agent) { reportsUpgrade(a, "0", v1alpha1.UpgradeUpgrading) }, "", upgradeSkipped, "--resume"},
		"held":                     {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionHeld, metav1.ConditionTrue) }, "", upgradeSkipped, "pending"},
		"diverged":                 {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionSynced, metav1.ConditionFalse) }, "", upgradeSkipped, "not in sync"},
		"comparing":                {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionSynced, metav1.ConditionUnknown) }, "", upgradeSkipped, "not in sync"},
		"resumed, asked":           {func(a *v1alpha1.Agent) { a.Spec.Upgrade = &v1alpha1.Upgrade{ID: "1"} }, "1", upgradeRequested, ""},
		"resumed, succeeded": {func(a *v1alpha1.Agent) {
			a.Spec.Upgrade, a.Status.Version = &v1alpha1.Upgrade{ID: "1"}, "v0.3.0"
			reportsUpgrade(a, "1", v1alpha1.UpgradeSucceeded)
		}, "1", upgradeRequested, ""},
		"resumed, rolled back": {func(a *v1alpha1.Agent) {
			a.Spec.Upgrade = &v1alpha1.Upgrade{ID: "1"}
			reportsUpgrade(a, "1", v1alpha1.UpgradeRolledBack)
		}, "1", upgradeSkipped, "RolledBack in this upgrade"},
		"resumed, asked in another": {func(a *v1alpha1.Agent) { a.Spec.Upgrade = &v1alpha1.Upgrade{ID: "0"} }, "1", upgradePlanned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := upgradable("w1", "v0.2.0")
			if c.change != nil {
				c.change(&a)
			}
			state, reason := upgradeClass(&a, "v0.3.0", c.id)
			if state != c.state || !strings.Contains(reason, c.reason) || c.reason == "" && reason != "" {
				t.Errorf("%s: %q", state, reason)
			}
		})
	}
}

// The gate of a wave is the digest proof with the new version, not the connection.
func TestUpgradeProgress_NeedsDigestProof(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Agent)
		want   upgradeResult
	}{
		"in sync":                {nil, upgradeDone},
		"only connected":         {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionSynced, metav1.ConditionUnknown) }, upgradePending},
		"diverged":               {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionSynced, metav1.ConditionFalse) }, upgradePending},
		"disconnected":           {func(a *v1alpha1.Agent) { a.Status.Connected = false }, upgradePending},
		"held":                   {func(a *v1alpha1.Agent) { setCondition(a, v1alpha1.ConditionHeld, metav1.ConditionTrue) }, upgradeBroken},
		"another version":        {func(a *v1alpha1.Agent) { a.Status.Version = "v0.2.0" }, upgradeBroken},
		"of another request":     {func(a *v1alpha1.Agent) { a.Status.Upgrade.ID = "0" }, upgradePending},
		"not reported":           {func(a *v1alpha1.Agent) { a.Status.Upgrade = nil }, upgradePending},
		"preparing":              {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradePreparing) }, upgradePending},
		"upgrading":              {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradeUpgrading) }, upgradePending},
		"waiting":                {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradeWaiting) }, upgradePending},
		"rolled back":            {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradeRolledBack) }, upgradeBroken},
		"failed":                 {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradeFailed) }, upgradeBroken},
		"refused":                {func(a *v1alpha1.Agent) { reportsUpgrade(a, "1", v1alpha1.UpgradeRefused) }, upgradeBroken},
		"refused another":        {func(a *v1alpha1.Agent) { reportsUpgrade(a, "0", v1alpha1.UpgradeRefused) }, upgradePending},
		"suspended in the while": {func(a *v1alpha1.Agent) { a.Spec.Suspended = true }, upgradeBroken},
	} {
		t.Run(name, func(t *testing.T) {
			a := upgradable("w1", "v0.3.0")
			reportsUpgrade(&a, "1", v1alpha1.UpgradeSucceeded)
			if c.change != nil {
				c.change(&a)
			}
			if got, state, reason := upgradeProgress(&a, "v0.3.0", "1"); got != c.want {
				t.Errorf("%v: %s %s", got, state, reason)
			}
		})
	}
	if got, _, _ := upgradeProgress(nil, "v0.3.0", "1"); got != upgradeBroken {
		t.Error("a deleted Agent is waited for")
	}
}

func TestUpgradeWaves_IncludeThoseBefore(t *testing.T) {
	for _, c := range []struct {
		waves          string
		before, agents int
		want           string
	}{
		{"5%,25%,100%", 0, 20, "[1 4 15]"}, {"5%,25%,100%", 0, 3, "[1 0 2]"}, {"100%", 0, 0, "[0]"}, {"5%,25%,100%", 0, 101, "[6 20 75]"},
		{"1,10,100%", 0, 20, "[1 9 10]"}, {"5%,25%,100%", 4, 16, "[0 1 15]"}, {"50%", 0, 4, "[2]"}, {"30", 0, 4, "[4]"},
	} {
		waves, err := parseWaves(c.waves)
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for _, names := range waves.split(upgradePlan{current: make([]string, c.before), waiting: make([]string, c.agents)}) {
			sizes = append(sizes, len(names))
		}
		if got := fmt.Sprint(sizes); got != c.want {
			t.Errorf("%s with %d agents, %d before: %s, want %s", c.waves, c.agents, c.before, got, c.want)
		}
	}
	for _, wrong := range []string{"", "0%", "101%", "x", "50%,25%", "10,5", "-1", "5%,"} {
		if _, err := parseWaves(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// upgradeFleet is a hub whose agents follow requests at once.
type upgradeFleet struct {
	agents []v1alpha1.Agent
	phases map[string]string // agent → phase that it reports; if unset, it succeeds
	asked  []string
}

func (f *upgradeFleet) ask(_ context.Context, name string, u *v1alpha1.Upgrade) error {
	i := slices.IndexFunc(f.agents, func(a v1alpha1.Agent) bool { return a.Name == name })
	a := &f.agents[i]
	if a.Spec.Upgrade = u; u == nil {
		f.asked = append(f.asked, "-"+name)
		return nil
	}
	f.asked = append(f.asked, name)
	phase := f.phases[name]
	switch {
	case !a.Status.Connected || phase == "silent":
	case phase != "":
		reportsUpgrade(a, u.ID, phase)
	default:
		reportsUpgrade(a, u.ID, v1alpha1.UpgradeSucceeded)
		a.Status.Version = u.Version
	}
	return nil
}

// run runs an upgrade. Each look at the clock takes a minute.
func (f *upgradeFleet) run(t *testing.T, o upgradeOptions) (out, warnings string, err error) {
	t.Helper()
	f.asked = nil
	var stdout, stderr bytes.Buffer
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := &Program{Stdout: &stdout, Stderr: &stderr, Now: func() time.Time { now = now.Add(time.Minute); return now }}
	o.to, o.timeout = "v0.3.0", 5*time.Minute
	if o.wave == "" {
		o.wave = "1,50%,100%"
	}
	waves, err := o.check()
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}) // closed: there is always a change
	close(changed)
	r := &upgradeRun{p: p, upgradeOptions: &o, waves: waves, initial: slices.Clone(f.agents), changed: changed, ask: f.ask,
		agents: func() []v1alpha1.Agent { return slices.Clone(f.agents) }, synced: func() bool { return true }}
	err = r.run(t.Context())
	return stdout.String(), stderr.String(), err
}

func newUpgradeFleet() *upgradeFleet {
	f := &upgradeFleet{phases: map[string]string{}}
	for _, name := range []string{"w4", "w3", "w2", "w1"} {
		f.agents = append(f.agents, upgradable(name, "v0.2.0"))
	}
	return f
}

func TestUpgrade_AsksInWaves(t *testing.T) {
	f := newUpgradeFleet()
	out, _, err := f.run(t, upgradeOptions{halt: true})
	if err != nil || fmt.Sprint(f.asked) != "[w1 w2 w3 w4]" {
		t.Errorf("%v: asked %v", err, f.asked)
	}
	for _, line := range []string{`{"wave":1,"agent":"w1","version":"v0.2.0","state":"Planned"}`, `{"wave":2,"agent":"w2","version":"v0.3.0","state":"Succeeded","message":"because"}`,
		`{"wave":3,"agent":"w4","version":"v0.3.0","state":"Succeeded","message":"because"}`} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %s in\n%s", line, out)
		}
	}
	out, _, err = f.run(t, upgradeOptions{halt: true, output: asTable})
	if err != nil || len(f.asked) > 0 || strings.Count(out, upgradeUpToDate) != 4 {
		t.Errorf("again: %v, asked %v\n%s", err, f.asked, out)
	}
}

func TestUpgrade_DryRunChangesNothing(t *testing.T) {
	f := newUpgradeFleet()
	out, _, err := f.run(t, upgradeOptions{dryRun: true, output: asTable})
	if err != nil || len(f.asked) > 0 || !strings.Contains(out, "3      w4      v0.2.0    Planned") {
		t.Errorf("%v: asked %v\n%s", err, f.asked, out)
	}
}

func TestUpgrade_HaltsAndResumes(t *testing.T) {
	for _, phase := range []string{v1alpha1.UpgradeRolledBack, v1alpha1.UpgradeFailed, v1alpha1.UpgradeRefused} {
		f := newUpgradeFleet()
		f.phases["w2"] = phase
		_, warnings, err := f.run(t, upgradeOptions{halt: true})
		if !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w1 w2]" || !strings.Contains(warnings, "w2 is "+phase+": because") || !strings.Contains(warnings, "--resume") {
			t.Fatalf("%v: asked %v\n%s", err, f.asked, warnings)
		}
		out, _, err := f.run(t, upgradeOptions{halt: true, resume: true})
		if !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w3 w4]" || !strings.Contains(out, phase+" in this upgrade") {
			t.Fatalf("resumed: %v, asked %v\n%s", err, f.asked, out)
		}
		f.phases = nil
		if phase == v1alpha1.UpgradeRefused { // until the agent reports otherwise
			f.agents[2].Status.Upgrade.Phase = v1alpha1.UpgradeReady
		}
		if _, _, err = f.run(t, upgradeOptions{halt: true}); err != nil || fmt.Sprint(f.asked) != "[w2]" {
			t.Errorf("again: %v, asked %v", err, f.asked)
		}
	}
	f := newUpgradeFleet()
	if _, _, err := f.run(t, upgradeOptions{resume: true}); err == nil || !strings.Contains(err.Error(), "no upgrade to v0.3.0") {
		t.Errorf("%v", err)
	}
}

func TestUpgrade_WithoutHaltContinues(t *testing.T) {
	f := newUpgradeFleet()
	f.phases["w1"] = v1alpha1.UpgradeRolledBack
	if _, _, err := f.run(t, upgradeOptions{}); !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w1 w2 w3 w4]" {
		t.Errorf("%v: asked %v", err, f.asked)
	}
}

// An agent that has not begun is not upgraded later, outside of the waves.
func TestUpgrade_TimeoutWithdrawsRequests(t *testing.T) {
	f := newUpgradeFleet()
	f.phases["w1"] = "silent"
	_, warnings, err := f.run(t, upgradeOptions{halt: true})
	if !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w1 -w1]" || !strings.Contains(warnings, "w1 is TimedOut: Requested after 10m0s") {
		t.Errorf("%v: asked %v\n%s", err, f.asked, warnings)
	}
	f = newUpgradeFleet()
	f.phases["w1"] = v1alpha1.UpgradeUpgrading
	if _, _, err := f.run(t, upgradeOptions{halt: true}); !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w1]" {
		t.Errorf("%v: asked %v", err, f.asked)
	}
}

func TestUpgrade_OfflineAgentsAreAskedLast(t *testing.T) {
	f := newUpgradeFleet()
	f.agents[3].Status.Connected = false // w1
	out, _, err := f.run(t, upgradeOptions{halt: true})
	if !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w2 w3 w4 w1]" || f.agents[3].Spec.Upgrade == nil || !strings.Contains(out, "asked: it upgrades when it returns") {
		t.Errorf("%v: asked %v\n%s", err, f.asked, out)
	}
	f = newUpgradeFleet()
	f.agents[3].Status.Connected = false
	f.phases["w3"] = v1alpha1.UpgradeRolledBack
	if _, _, _ = f.run(t, upgradeOptions{halt: true}); f.agents[3].Spec.Upgrade != nil {
		t.Error("an offline agent was asked although the upgrade was halted")
	}
}

func TestUpgrade_LastWaveCanBeSmaller(t *testing.T) {
	f := newUpgradeFleet()
	_, warnings, err := f.run(t, upgradeOptions{wave: "1,50%"})
	if !errors.As(err, &findingsError{}) || fmt.Sprint(f.asked) != "[w1 w2]" || !strings.Contains(warnings, "The last wave is 50%") {
		t.Errorf("%v: asked %v\n%s", err, f.asked, warnings)
	}
	if _, _, err := f.run(t, upgradeOptions{resume: true}); err != nil || fmt.Sprint(f.asked) != "[w3 w4]" {
		t.Errorf("resumed: %v, asked %v", err, f.asked)
	}
}

func TestUpgrade_ChecksFlags(t *testing.T) {
	for want, o := range map[string]upgradeOptions{
		"--to is missing": {}, "--to \"a b\"": {to: "a b"}, "--digest": {to: "v1", digest: "sha256:1"}, "without tag": {to: "v1", repository: "r.example.com/a:v1"},
		"--timeout": {to: "v1", timeout: time.Second}, "--wave": {to: "v1", timeout: time.Minute, wave: "0"},
	} {
		if _, err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	good := upgradeOptions{to: "v1", timeout: time.Minute, wave: "100%", repository: "registry.example.com:5000/a"}
	if _, err := good.check(); err != nil {
		t.Error(err)
	}
}
