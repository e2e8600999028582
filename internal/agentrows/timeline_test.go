package agentrows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestTimelines_RecordChangesOfStatus(t *testing.T) {
	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: today.Add(time.Duration(minutes) * time.Minute)}
	}
	lines := NewTimelines()
	agent := v1alpha1.Agent{}
	agent.Name, agent.UID, agent.CreationTimestamp = "w1", "1", *at(0)
	observe := func(minute int, want string, change func()) {
		t.Helper()
		before, _ := lines.Of("w1")
		change()
		lines.Observe(&agent, at(minute).Time)
		after, _ := lines.Of("w1")
		var got []string
		for _, e := range after[:len(after)-len(before)] {
			got = append(got, strings.TrimSpace(fmt.Sprint(time.Unix(e.Time, 0).Sub(today).Minutes(), " ", e.Type, " ", e.Message)))
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("minute %d: %s, want %s", minute, text, want)
		}
	}
	s := &agent.Status
	observe(1, "0 Created", func() {})
	observe(2, "2 Connected principal p-0, version 1.0", func() { s.Connected, s.Since, s.Principal, s.Version = true, at(2), "p-0", "1.0" })
	observe(3, "", func() { s.Applications, s.LastConfirmed = 7, at(3) })
	observe(4, "4 Held 9 deletions of application: restored", func() {
		s.Holds = []v1alpha1.Hold{{ID: "x", Scope: "application", Count: 9, Reason: "restored", Since: at(4)}}
	})
	observe(5, "5 Confirmed hold x", func() { agent.Annotations = map[string]string{v1alpha1.ConfirmAnnotation: "x"} })
	observe(6, "", func() { agent.Annotations = nil })
	observe(7, "7 Released 9 deletions of application", func() { s.Holds = nil })
	observe(8, "8 Connected principal p-1, version 1.0", func() { s.Since, s.Principal = at(8), "p-1" }) // another session
	observe(9, "9 Disconnected lost", func() {
		s.Connected, s.Since, s.Conditions = false, at(9), []metav1.Condition{{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Message: "lost"}}
	})
	observe(10, "10 RegisteredFailed taken", func() {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionRegistered, Status: metav1.ConditionFalse, Message: "taken", LastTransitionTime: *at(10)})
	})
	observe(11, "11 Registered", func() {
		s.Conditions = []metav1.Condition{s.Conditions[0], {Type: v1alpha1.ConditionRegistered, Status: metav1.ConditionTrue, LastTransitionTime: *at(11)}}
	})
	observe(12, "12 Suspended", func() { agent.Spec.Suspended = true })
	observe(13, "13 Resumed", func() { agent.Spec.Suspended = false })
	observe(14, "14 Deleted", func() { agent.DeletionTimestamp = at(14) })

	// A process that starts knows what the status has.
	s.Holds = []v1alpha1.Hold{{ID: "y", Reason: strings.Repeat("x", 1000), Since: at(15)}}
	fresh := NewTimelines()
	fresh.Observe(&agent, at(20).Time)
	var types []string
	entries, _ := fresh.Of("w1")
	for _, e := range entries {
		types = append(types, e.Type)
		if len(e.Message) > maxMessage {
			t.Errorf("message of %d bytes", len(e.Message))
		}
	}
	if got := strings.Join(types, " "); got != "Held Deleted Disconnected Created" {
		t.Errorf("after a restart: %s", got)
	}
	for i := range 3 * MaxEntries {
		s.Since = at(100 + i)
		lines.Observe(&agent, at(100+i).Time)
	}
	if entries, _ := lines.Of("w1"); len(entries) != MaxEntries || entries[0].Time != at(100+3*MaxEntries-1).Unix() {
		t.Errorf("%d entries, the newest %v", len(entries), entries[0])
	}
	agent.UID = "2" // another Agent with the same name
	lines.Observe(&agent, at(500).Time)
	if entries, _ := lines.Of("w1"); len(entries) != 4 {
		t.Errorf("the timeline of another Agent has %v", entries)
	}
	lines.Forget("w1")
	if _, known := lines.Of("w1"); known {
		t.Error("a forgotten agent is known")
	}
}
