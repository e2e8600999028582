package monitoring

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"sigs.k8s.io/yaml"
)

type rule struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

// rules returns the alerts of the chart by name.
func rules(t testing.TB) map[string]rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "install/helm/argocd-agent/files/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]rule{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if _, twice := all[r.Alert]; r.Alert == "" || twice {
				t.Errorf("alert %q has no name of its own", r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

func TestAlerts_QueriesAreValid(t *testing.T) {
	metrics := reference(t)
	for name, r := range rules(t) {
		for _, problem := range unknown(metrics, r.Expr) {
			t.Errorf("%s: %s", name, problem)
		}
		if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s: severity %q", name, severity)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", name)
		}
	}
}

func TestAlerts_HaveRunbooks(t *testing.T) {
	all, page := rules(t), read(t, "docs/runbooks.md")
	for name, r := range all {
		if want := "https://github.com/argocd-agent/argocd-agent/blob/main/docs/runbooks.md#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook %q, want %q", name, r.Annotations["runbook_url"], want)
		}
		_, section, found := strings.Cut(page, "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Check.**", "**Fix.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("docs/runbooks.md, %s (found: %v): no %s", name, found, part)
			}
		}
	}
	for _, title := range regexp.MustCompile(`(?m)^## (ArgoCDAgent\w+)$`).FindAllStringSubmatch(page, -1) {
		if _, there := all[title[1]]; !there {
			t.Errorf("docs/runbooks.md describes %s, which does not exist", title[1])
		}
	}
}

// series are samples of one minute each, in the notation of Prometheus: 0x10 is eleven zeros, _x5 five missing samples.
const principal = "argocd_agent_principal_"

// Two principal replicas, a and b, export every agent. Only the one with the session knows its state.
func TestAlerts_WithSeveralReplicas(t *testing.T) {
	const minutes = 60
	all := rules(t)
	connected := []string{`connected{agent="w1",instance="a"} 1x60`, `connected{agent="w1",instance="b"} 0x60`}
	// The session moves from a to b after 10 minutes.
	moved := []string{`connected{agent="w1",instance="a"} 1x9 0x50`, `connected{agent="w1",instance="b"} 0x9 1x50`}
	tested := map[string][2]bool{} // fires, does not fire
	for _, tc := range []struct {
		alert, name string
		series      []string
		first       int    // minute in which it fires for the first time; -1: never
		last        string // what fires at the end, as labels
	}{
		{"ArgoCDAgentPrincipalDown", "one of two replicas is down", []string{`build_info{instance="a"} 1x60`, `build_info{instance="b"} 1x9`}, -1, ""},
		{"ArgoCDAgentPrincipalDown", "both are down", []string{`build_info{instance="a"} 1x9 stale`, `build_info{instance="b"} 1x19 stale`}, 25, "{}"},
		{"ArgoCDAgentDisconnected", "connected to one replica", connected, -1, ""},
		{"ArgoCDAgentDisconnected", "the session moves", moved, -1, ""},
		{"ArgoCDAgentDisconnected", "one agent of two leaves", append([]string{`connected{agent="w2",instance="a"} 0x60`, `connected{agent="w2",instance="b"} 1x9 0x50`}, connected...), 25, `{agent="w2"}`},
		{"ArgoCDAgentDisconnected", "a short outage", []string{`connected{agent="w1",instance="a"} 1x9 0x13 1x36`}, -1, ""},
		{"ArgoCDAgentDiverged", "known to the replica with the session", append([]string{
			`divergent_items{agent="w1",scope="application",role="replica",instance="a"} 0x9 3x50`, `divergent_items{agent="w1",scope="application",role="replica",instance="b"} 0x60`}, connected...), 20, `{agent="w1"}`},
		{"ArgoCDAgentDiverged", "the last state of a replica that lost the session", append([]string{
			`divergent_items{agent="w1",scope="application",role="replica",instance="a"} 0x4 3x55`, `divergent_items{agent="w1",scope="application",role="replica",instance="b"} 0x60`}, moved...), -1, ""},
		{"ArgoCDAgentItemsRejected", "by either side", append([]string{`rejected_items{agent="w1",scope="application",role="owner",instance="a"} 1x60`}, connected...), 10, `{agent="w1"}`},
		{"ArgoCDAgentItemsRejected", "in an ended session", append([]string{`rejected_items{agent="w1",scope="application",role="owner",instance="b"} 1x60`}, connected...), -1, ""},
		{"ArgoCDAgentDeliveryStalled", "an agent does not acknowledge", append([]string{`oldest_unacked_seconds{agent="w1",scope="application",role="owner",instance="a"} 0+60x60`}, connected...), 11, `{agent="w1"}`},
		{"ArgoCDAgentDeliveryStalled", "a busy agent", append([]string{`oldest_unacked_seconds{agent="w1",scope="application",role="owner",instance="a"} 200x60`}, connected...), -1, ""},
		{"ArgoCDAgentDeletionsHeld", "on the workload cluster", append([]string{
			`held_deletions{agent="w1",scope="application",role="owner",instance="a"} 0x9 12x50`, `held_deletions{agent="w1",scope="status",role="replica",instance="a"} 0x60`}, connected...), 15, `{agent="w1"}`},
		{"ArgoCDAgentDeletionsHeld", "until the hub confirms", append([]string{`held_deletions{agent="w1",scope="application",role="owner",instance="a"} 0x9 12x2 0x48`}, connected...), -1, ""},
		{"ArgoCDAgentFleetHold", "decided by one replica", []string{`fleet_hold{instance="a"} 0x9 1x50`, `fleet_hold{instance="b"} 0x60`}, 10, "{}"},
		{"ArgoCDAgentFleetHold", "none", []string{`fleet_hold{instance="a"} 0x60`, `fleet_hold{instance="b"} 0x60`}, -1, ""},
		{"ArgoCDAgentStoreUntrusted", "a restored cluster", append([]string{`store_untrusted{agent="w1",instance="a"} 0x9 1x50`, `store_untrusted{agent="w1",instance="b"} 0x60`}, connected...), 10, `{agent="w1"}`},
		{"ArgoCDAgentStoreUntrusted", "confirmed through another replica", append([]string{`store_untrusted{agent="w1",instance="a"} 0x60`, `store_untrusted{agent="w1",instance="b"} 1x60`}, connected...), -1, ""},
		{"ArgoCDAgentHubWriteOutage", "seen by one replica", []string{`api_write_outage{instance="a"} 0x60`, `api_write_outage{instance="b"} 0x9 1x50`}, 15, "{}"},
		{"ArgoCDAgentHubWriteOutage", "a short outage", []string{`api_write_outage{instance="a"} 0x9 1x3 0x46`}, -1, ""},
		{"ArgoCDAgentAuditLinesLost", "by one replica", []string{`audit_lines_lost_total{reason="queue",instance="a"} 0x50 5x9`, `audit_lines_lost_total{reason="queue",instance="b"} 0x60`}, 51, "{}"},
		{"ArgoCDAgentAuditLinesLost", "long ago", []string{`audit_lines_lost_total{reason="queue",instance="a"} 7x60`}, -1, ""},
		{"ArgoCDAgentStandbyBehind", "disconnected from the active hub", []string{`standby_lag_seconds{instance="a"} 4x9 0+60x50`}, 21, "{}"},
		{"ArgoCDAgentStandbyBehind", "a short outage", []string{`standby_lag_seconds{instance="a"} 4x9 0+60x8 4x42`}, -1, ""},
	} {
		t.Run(tc.alert+", "+tc.name, func(t *testing.T) {
			r, there := all[tc.alert]
			if !there {
				t.Fatal("there is no such alert")
			}
			first, last := fires(t, r, load(t, tc.series), minutes)
			if got := strings.Join(slices.Sorted(maps.Keys(last)), " "); first != tc.first || got != tc.last {
				t.Errorf("fires from minute %d, at the end %q, want %d and %q", first, got, tc.first, tc.last)
			}
			for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
				for labels := range last {
					if !strings.Contains(labels, label[1]+"=") {
						t.Errorf("the summary names label %s, which %s does not have", label[1], labels)
					}
				}
			}
			both := tested[tc.alert]
			both[0], both[1] = both[0] || tc.first >= 0, both[1] || tc.first < 0
			tested[tc.alert] = both
		})
	}
	for name := range all {
		if tested[name] != [2]bool{true, true} {
			t.Errorf("%s: a case in which it fires, and one in which it does not, are missing", name)
		}
	}
}

// fires evaluates an alert every minute, as Prometheus does. It returns when the alert fires first, or -1, and what fires
// at the end.
func fires(t *testing.T, r rule, data storage.Queryable, minutes int) (first int, last map[string]bool) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: queries})
	defer engine.Close()
	var wait model.Duration
	if r.For != "" {
		var err error
		if wait, err = model.ParseDuration(r.For); err != nil {
			t.Fatal(err)
		}
	}
	first = -1
	since := map[string]int{}
	for minute := range minutes + 1 {
		query, err := engine.NewInstantQuery(t.Context(), data, nil, r.Expr, time.UnixMilli(0).Add(time.Duration(minute)*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		active := map[string]int{}
		last = map[string]bool{}
		for _, sample := range vector {
			labels := sample.Metric.String()
			active[labels] = minute
			if before, was := since[labels]; was {
				active[labels] = before
			}
			if time.Duration(minute-active[labels])*time.Minute >= time.Duration(wait) {
				last[labels] = true
			}
		}
		if len(last) > 0 && first < 0 {
			first = minute
		}
		since = active
		query.Close()
	}
	return first, last
}

// load returns series with a sample per minute.
func load(t *testing.T, descriptions []string) storage.Queryable {
	t.Helper()
	var all series
	for _, description := range descriptions {
		labels, values, err := queries.ParseSeriesDesc(principal + description)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", description, err))
		}
		var samples []sample
		for minute, value := range values {
			if !value.Omitted {
				samples = append(samples, sample{time.Duration(minute) * time.Minute, value.Value})
			}
		}
		all = append(all, newSeries(labels, samples))
	}
	return all
}
