package kind

import (
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// skewedHub is a hub whose agent has a clock that is ahead of it.
func skewedHub(ahead time.Duration) *Env {
	w := managedHub()
	w.ClockSkew = ahead
	return w
}

const (
	requested = `{"info":[{"name":"Reason","value":"x"}],"sync":{}}`
	plainSync = `{"sync":{"revision":"r"}}`
)

func operationState(operation, started, finished string) string {
	if finished != "" {
		finished = `,"phase":"Succeeded","finishedAt":"` + finished + `"`
	} else {
		finished = `,"phase":"Running"`
	}
	return `{"operation":` + operation + `,"startedAt":"` + started + `"` + finished + `}`
}

func TestClock_HubShowsItsOwnTimes(t *testing.T) {
	const minute = "2026-01-01T00:01:00Z"
	for name, c := range map[string]struct {
		ahead                         time.Duration
		operation, before             string
		started, finished, reconciled string // by the hub's clock; empty: as the spoke has them
	}{
		"equal clocks":             {0, requested, `{}`, "", "", ""},
		"almost equal clocks":      {-1900 * time.Millisecond, requested, `{}`, "", "", ""},
		"behind":                   {-10 * time.Minute, requested, `{}`, "2026-01-01T00:11:00Z", "2026-01-01T00:11:05Z", "2026-01-01T00:11:06Z"},
		"ahead":                    {30 * time.Second, plainSync, `{}`, "2026-01-01T00:00:30Z", "2026-01-01T00:00:35Z", "2026-01-01T00:00:36Z"},
		"another operation before": {-10 * time.Minute, requested, `{"operationState":` + operationState(requested, "2026-01-01T00:00:59Z", "") + `}`, "2026-01-01T00:11:00Z", "2026-01-01T00:11:05Z", "2026-01-01T00:11:06Z"},
		"shown with other times before": {-10*time.Minute - 2*time.Second, requested,
			`{"operationState":` + operationState(withTimes(requested, minute+" "), "2026-01-01T00:11:00Z", "") + `}`, "2026-01-01T00:11:00Z", "2026-01-01T00:11:05Z", "2026-01-01T00:11:06Z"},
		"the clock was set since": {0, requested,
			`{"operationState":` + operationState(withTimes(requested, minute+" "), "2026-01-01T00:11:00Z", "") + `}`, "2026-01-01T00:11:00Z", "2026-01-01T00:11:05Z", ""},
		"shown unchanged before":                {-10 * time.Minute, requested, `{"operationState":` + operationState(requested, minute, "") + `}`, "", "", "2026-01-01T00:11:06Z"},
		"an info list that cannot be restored":  {-10 * time.Minute, `{"info":[],"sync":{}}`, `{}`, "", "", "2026-01-01T00:11:06Z"},
		"a record that an agent made up itself": {0, withTimes(requested, "2020-01-01T00:00:00Z 2020-01-01T00:00:00Z"), `{}`, "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := skewedHub(c.ahead)
			content := `{"status":{"operationState":` + operationState(c.operation, minute, "2026-01-01T00:01:05Z") + `}}`
			after, err := StatusKind{}.Merge(hubApp(t, "", c.before), named("a"), []byte(content), []byte(`{"reconciledAt":"2026-01-01T00:01:06Z"}`), Ownership{}, w)
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string][2]string{"startedAt": {c.started, minute}, "finishedAt": {c.finished, "2026-01-01T00:01:05Z"}} {
				if want[0] == "" {
					want[0] = want[1]
				}
				if got := rawjson.Text(after.Get("status", "operationState", path)); got != want[0] {
					t.Errorf("%s is %s, want %s", path, got, want[0])
				}
			}
			if want := c.reconciled; want != "" && rawjson.Text(after.Get("status", "reconciledAt")) != want || want == "" && rawjson.Text(after.Get("status", "reconciledAt")) != "2026-01-01T00:01:06Z" {
				t.Errorf("reconciledAt is %s, want %s", after.Get("status", "reconciledAt"), want)
			}
			if strings.Contains(name, "made up") {
				return // the two sides differ until the agent is repaired
			}
			stored, _ := StatusKind{}.ReadReplica(after, w)
			expectJSON(t, "replicated", stored.Content, content)
			again, err := StatusKind{}.Merge(after, named("a"), []byte(content), nil, Ownership{}, w)
			if err != nil || !Same(after, again) {
				t.Errorf("merged again, it is %s, %v", again.Raw(), err)
			}
		})
	}
}

func withTimes(operation, times string) string {
	return string(withInfo([]byte(operation), TimesInfo, times))
}

// What refers to an operation of the spoke does so by the spoke's clock.
func TestClock_CommandsUseTheSpokesTimes(t *testing.T) {
	w := skewedHub(-10 * time.Minute)
	running := operationState(bySpoke, "2026-01-01T00:01:00Z", "")
	content := `{"operation":` + bySpoke + `,"status":{"operationState":` + running + `}}`
	shown := merge(t, StatusKind{}, hubApp(t, "", `{}`), named("a"), content, w)
	terminating := object(t, strings.Replace(string(shown.Raw()), `"Running"`, `"Terminating"`, 1))
	commands, _ := Pending(terminating, w)
	if commands.Terminate.StartedAt != "2026-01-01T00:01:00Z" {
		t.Errorf("terminates the operation of %q", commands.Terminate.StartedAt)
	}
	kept := merge(t, StatusKind{}, terminating, named("a"), content, w)
	if phase := rawjson.Text(kept.Get("status", "operationState", "phase")); phase != "Terminating" {
		t.Errorf("the request to terminate is lost: %s", phase)
	}
}
