package fleet

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// recordedHold is the ConfigMap with a hold; confirmed: with that value.
func recordedHold(t *testing.T, id, settings, confirmed string) *kind.Object {
	t.Helper()
	return parsed(t, map[string]any{
		"metadata": map[string]any{"name": v1alpha1.FleetHold, "resourceVersion": "7", "annotations": map[string]string{v1alpha1.ConfirmAnnotation: confirmed}},
		"data":     map[string]string{v1alpha1.FleetHoldID: id, v1alpha1.FleetHoldSettings: settings, "since": "x"}})
}

func TestFleetHold_ConfirmedByItsID(t *testing.T) {
	for _, c := range []struct {
		name string
		o    *kind.Object
		want reconcile.FleetRecord
	}{
		{"none", nil, reconcile.FleetRecord{}},
		{"over", recordedHold(t, "", "", "fleet-1"), reconcile.FleetRecord{}},
		{"ended, and confirmed without ID", recordedHold(t, "", "", ""), reconcile.FleetRecord{}},
		{"held", recordedHold(t, "fleet-1", "s", ""), reconcile.FleetRecord{ID: "fleet-1", Settings: "s"}},
		{"confirmed", recordedHold(t, "fleet-1", "s", "fleet-1"), reconcile.FleetRecord{ID: "fleet-1", Settings: "s", Confirmed: true}},
		{"an older one was confirmed", recordedHold(t, "fleet-2", "s", "fleet-1"), reconcile.FleetRecord{ID: "fleet-2", Settings: "s"}},
	} {
		if got := readFleetHold(c.o); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestFleetHold_RecordedOnce(t *testing.T) {
	hold := reconcile.RecordFleetHold{Record: reconcile.FleetRecord{ID: "fleet-1", Settings: "s"}, Totals: reconcile.FleetTotals{Compared: 40, Affected: 12, Items: 30},
		Sample: []string{"w1: application a", "w2: application b\nw3: application c\x1b"}}
	over := reconcile.RecordFleetHold{Record: hold.Record, Over: true}
	for _, c := range []struct {
		name  string
		there *kind.Object
		e     reconcile.RecordFleetHold
		has   []string // nil: nothing changes
		lacks []string
	}{
		{"the first", nil, hold, []string{`"id":"fleet-1"`, `"agents":"12"`, `"compared":"40"`, `"items":"30"`, `"since":"1970-01-01T00:00:09Z"`, `part-of`, `w1: application a`}, []string{`"annotations"`, `\nw3`, `\u001b`, "resourceVersion"}},
		{"after one that is over", recordedHold(t, "", "", "fleet-0"), hold, []string{`"id":"fleet-1"`, `"since"`, `"resourceVersion":"7"`, `/confirm":null`}, nil},
		{"newer totals", recordedHold(t, "fleet-1", "s", "fleet-1"), hold, []string{`"agents":"12"`}, []string{`"since"`, "confirm\":null"}},
		{"another replica was first", recordedHold(t, "fleet-9", "s", ""), hold, nil, nil},
		{"one of other settings", recordedHold(t, "fleet-9", "s0", "fleet-9"), hold, []string{`"id":"fleet-1"`, `/confirm":null`}, nil},
		{"it is over", recordedHold(t, "fleet-1", "s", "fleet-1"), over, []string{`"id":null`, `"since":null`, `/confirm":null`, `"resourceVersion":"7"`}, nil},
		{"it is over already", recordedHold(t, "", "", ""), over, nil, nil},
		{"there is another one", recordedHold(t, "fleet-9", "s", ""), over, nil, nil},
		{"it was deleted", nil, over, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := fleetHoldChange("argocd", c.there, c.e, time.Unix(9, 0))
			if (change == nil) != (c.has == nil) {
				t.Fatalf("changes %v", change)
			}
			b, err := json.Marshal(change)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range c.has {
				if !strings.Contains(string(b), one) {
					t.Errorf("%s is not in %s", one, b)
				}
			}
			for _, one := range c.lacks {
				if strings.Contains(string(b), one) {
					t.Errorf("%s is in %s", one, b)
				}
			}
		})
	}
}

func TestStatus_ReportsFleetHold(t *testing.T) {
	held := func(cause engine.Cause) *sessionState {
		s := openSession(1)
		s.engine.RemoteHolds = []engine.Held{{Scope: kind.ApplicationScope, ID: "h1", Count: 3, Of: 4, Cause: cause, Reason: "because"}}
		return s
	}
	for _, c := range []struct {
		name   string
		cause  engine.Cause
		fleet  reconcile.FleetRecord
		status string
		has    []string
		lacks  string
	}{
		{"its own budget", engine.CauseHalf, reconcile.FleetRecord{}, "True", []string{`"because" To confirm, run: ` + ConfirmCommand("argocd", "a", "h1")}, "fleet"},
		{"the check is under way", engine.CauseFleet, reconcile.FleetRecord{}, "False", []string{"Checking", "because"}, "To confirm"},
		{"many agents", engine.CauseFleet, reconcile.FleetRecord{ID: "fleet-1"}, "True", []string{"3 deletions of application", "has 4 items", "hold fleet-1 on many agents. To confirm all agents, run: " + fleetConfirmCommand("argocd", "fleet-1") + ". To confirm only this agent, run: " + ConfirmCommand("argocd", "a", "h1")}, "because"},
		{"many agents with small budgets", engine.CauseLast, reconcile.FleetRecord{ID: "fleet-1"}, "True", []string{"run: " + fleetConfirmCommand("argocd", "fleet-1")}, "because"},
		{"it is confirmed", engine.CauseFleet, reconcile.FleetRecord{ID: "fleet-1", Confirmed: true}, "False", []string{"Checking"}, "To confirm"},
		{"the store is another matter", engine.CauseStore, reconcile.FleetRecord{ID: "fleet-1"}, "True", []string{`"because" To confirm, run: ` + ConfirmCommand("argocd", "a", "h1")}, "configmap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := look(t, v1alpha1.Status{}, held(c.cause))
			v.fleet = c.fleet
			s := v.status()
			for _, one := range c.has {
				is(t, s, v1alpha1.ConditionHeld, c.status, one)
			}
			if c.status == "True" && (len(s.Holds) != 1 || s.Holds[0].ID != "h1" || s.Holds[0].Count != 3 || (s.Holds[0].FleetHold == "fleet-1") != strings.Contains(c.name, "many")) {
				t.Errorf("holds are %+v", s.Holds)
			}
			if c.status == "False" && len(s.Holds) != 0 {
				t.Errorf("holds are %+v", s.Holds)
			}
			for _, condition := range s.Conditions {
				if condition.Type == v1alpha1.ConditionHeld && strings.Contains(condition.Message, c.lacks) {
					t.Errorf("it says %q", condition.Message)
				}
			}
		})
	}
}

func TestHold_Metrics(t *testing.T) {
	value := func(f *Hold, name string) float64 {
		for _, m := range f.Metrics() {
			if m.Name == metricPrefix+name {
				return m.Samples[0].Value
			}
		}
		t.Fatalf("no metric %s", name)
		return 0
	}
	status := reconcile.FleetStatus{FleetTotals: reconcile.FleetTotals{Affected: 7, Items: 9}, Record: reconcile.FleetRecord{ID: "fleet-1"}}
	replicas := NewReplicas(nil, nil, "argocd", "here", "", nil)
	replicas.setFleet(status)
	f := NewHold(HoldConfig{Replicas: replicas})
	if value(f, "_fleet_hold") != 1 || value(f, "_fleet_affected_agents") != 7 || value(f, "_fleet_held_items") != 9 {
		t.Errorf("%+v", f.Metrics())
	}
	status.Record.Confirmed = true
	replicas.setFleet(status)
	if value(f, "_fleet_hold") != 0 {
		t.Error("a confirmed hold counts as held")
	}
}
