package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// tracedApplication is an Application that was edited at the start of today and has a status with these times, in seconds.
func tracedApplication(started, finished, reconciled float64) *unstructured.Unstructured {
	at := func(seconds float64) string {
		return today.Add(time.Duration(seconds * float64(time.Second))).Format(time.RFC3339)
	}
	status := map[string]any{}
	if reconciled > 0 {
		status["reconciledAt"] = at(reconciled)
	}
	if started != 0 {
		state := map[string]any{"startedAt": at(started)}
		if finished != 0 {
			state["finishedAt"] = at(finished)
		}
		status["operationState"] = state
	}
	app := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	app.SetNamespace("w1")
	app.SetName("web")
	edit := func(manager, fields string, seconds float64) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
			Time: &metav1.Time{Time: today.Add(time.Duration(seconds * float64(time.Second)))}}
	}
	app.SetManagedFields([]metav1.ManagedFieldsEntry{edit("kubectl-create", `{"f:spec":{}}`, -60), edit("argocd-server", `{"f:spec":{"f:source":{}}}`, 0),
		edit("argocd-agent", `{"f:spec":{},"f:status":{}}`, 30), edit("other", `{"f:metadata":{}}`, 40)})
	return app
}

// checkGolden compares a text with a file in testdata.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if this is intended, run: go test ./internal/cli -update\n%s", file, difference(string(want), got))
	}
}

func TestTrace_StagesOfLastChange(t *testing.T) {
	skew := int64(5)
	agent := &v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: "managed"}}
	agent.Name = "w1"
	ahead, autonomous := *agent, *agent
	ahead.Status.ClockSkewSeconds = &skew
	autonomous.Spec.Mode = "autonomous"
	sent := func(sent, acknowledged float64, handled int64, code string) *delivery {
		d := &delivery{Sent: today.Add(time.Duration(sent * float64(time.Second))), HandledMillis: handled, Code: code}
		if acknowledged != 0 {
			d.Acknowledged = today.Add(time.Duration(acknowledged * float64(time.Second)))
		}
		return d
	}
	var got strings.Builder
	for _, test := range []struct {
		name    string
		app     *unstructured.Unstructured
		agent   *v1alpha1.Agent
		d       *delivery
		unknown error
	}{
		{"complete", tracedApplication(4, 10, 4), agent, sent(0.5, 0.75, 200, ""), nil},
		{"clock of the agent is ahead", tracedApplication(9, 15, 9), &ahead, sent(0.5, 0.75, 200, ""), nil},
		{"no operation", tracedApplication(0, 0, 3), agent, sent(0.5, 0.75, 200, ""), nil},
		{"operation before the change", tracedApplication(0.0001, 0, 0), agent, sent(100, 101, 200, ""), nil},
		{"operation is running", tracedApplication(4, 0, 4), agent, sent(0.5, 0.75, 200, ""), nil},
		{"older agent", tracedApplication(4, 10, 4), agent, sent(0.5, 0.75, 0, ""), nil},
		{"not acknowledged", tracedApplication(4, 10, 4), agent, sent(0.5, 0, 0, ""), nil},
		{"rejected", tracedApplication(0, 0, 0), agent, sent(0.5, 0.75, 200, "Forbidden"), nil},
		{"edit after the delivery", tracedApplication(0, 0, 0), agent, sent(-60, -59, 200, ""), nil},
		{"not sent by this replica", tracedApplication(4, 10, 4), agent, nil, nil},
		{"not sent by this replica, operation before the edit", tracedApplication(-60, -50, 4), agent, nil, nil},
		{"no search API", tracedApplication(4, 10, 4), agent, nil, errors.New("Service argocd-agent-search has no ready pod: set --search-port of the principal, or --server")},
		{"autonomous", tracedApplication(4, 10, 4), &autonomous, nil, nil},
	} {
		var out bytes.Buffer
		p := &Program{Stdout: &out, Stderr: &out, Now: time.Now, output: asTable}
		result := traceOf(test.app, test.agent, test.d, test.unknown)
		if err := p.showTrace(result); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# %s\n%s\n", test.name, out.String())
		var total float64
		for _, s := range result.Stages {
			if (s.Seconds == nil) != (s.Share == nil) && result.Seconds > 0 || s.Seconds == nil && s.Note == "" {
				t.Errorf("%s: %+v", test.name, s)
			}
			if s.Share != nil {
				total += *s.Share
			}
		}
		if len(result.Stages) != 5 || result.Seconds > 0 && (total < 0.999 || total > 1.001) {
			t.Errorf("%s: %d stages with shares of %f", test.name, len(result.Stages), total)
		}
	}
	checkGolden(t, "trace.txt", got.String())

	var out bytes.Buffer
	p := &Program{Stdout: &out, Stderr: &out, Now: time.Now, output: asJSON}
	if err := p.showTrace(traceOf(tracedApplication(4, 10, 4), agent, sent(0.5, 0.75, 200, ""), nil)); err != nil {
		t.Fatal(err)
	}
	var decoded trace
	if err := json.Unmarshal(out.Bytes(), &decoded); err != nil || decoded.EditedBy != "argocd-server" || decoded.Seconds != 10 || *decoded.Stages[2].Seconds != 0.2 {
		t.Errorf("%v: %s", err, out.String())
	}
}

// The principal sends a restored Application with the UID of the one that it replaces.
func TestTrace_FindsDeliveriesOfRestoredApplications(t *testing.T) {
	for want, annotations := range map[string]map[string]string{
		"own":   nil,
		"lost":  {kind.PrincipalUID: "hub", kind.SourceUID: "lost"},
		"own ":  {kind.PrincipalUID: "hub", kind.SourceUID: "spoke", kind.AgentNameAnnotation: "w1"}, // replica of an agent
		"own  ": {kind.SourceUID: "spoke"},                                                           // copy of an existing installation
	} {
		app := &unstructured.Unstructured{}
		app.SetUID("own")
		app.SetAnnotations(annotations)
		if got := sentUID(app); got != strings.TrimSpace(want) {
			t.Errorf("%v: %s", annotations, got)
		}
	}
}
