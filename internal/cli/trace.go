package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) traceCommand() *cobra.Command {
	var f searchFlags
	cmd := p.withOutput(&cobra.Command{
		Use:   "trace app/[NAMESPACE/]NAME",
		Short: "Show where the last change of an Application spent its time",
		Long: `Shows the stages of the last change of an Application that the hub manages. It needs no collector of traces.

  hub         from the edit on the hub until the principal has sent it. The API server records edits with a precision
              of one second.
  transport   from the principal to the agent and back, without the next stage
  spoke       in the agent and in the API server of the workload cluster, until the change is stored
  compare     until the application controller has compared it with Git and the cluster, or has begun an operation
  sync        the sync operation of the application controller

The principal remembers the last delivery of 10,000 Applications, in the memory of the replica with the session. It
needs --search-port. Times of the workload cluster are corrected by the difference of the clocks when the agent
connected. A stage without a known time shows how to get it.`,
		Example: `  argocd-agentctl trace app/web
  argocd-agentctl trace app/w1/web -o json`,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			app, err := a.application(ctx, args[0])
			if err != nil {
				return err
			}
			agent, err := a.agentOf(ctx, app)
			if err != nil {
				return err
			}
			f.pod = agent.Status.Principal
			var found deliveryOf
			values := url.Values{"namespace": {app.GetNamespace()}, "name": {app.GetName()}, "uid": {sentUID(app)}}
			unknown := a.withSearch(ctx, f, func(s *searchClient) error { return s.get(ctx, "/v1/delivery", "", values, &found) })
			return p.showTrace(traceOf(app, agent, found.Delivery, unknown))
		}),
	})
	f.addServer(cmd.Flags())
	return cmd
}

// application returns the Application of an argument app/NAME or app/NAMESPACE/NAME.
func (a agents) application(ctx context.Context, argument string) (*unstructured.Unstructured, error) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(argument, "app/"), "/")
	if name == "" {
		namespace, name = "", namespace
	}
	if !strings.HasPrefix(argument, "app/") || name == "" || strings.Contains(name, "/") {
		return nil, cmdline.UsageErrorf("%q: must be app/NAME or app/NAMESPACE/NAME", argument)
	}
	list, err := a.dynamic.Resource(applicationResource).Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	switch {
	case err != nil && namespace == "":
		return nil, fmt.Errorf("find Application %s: %w; if you have no right to list Applications in all namespaces, use app/NAMESPACE/%[1]s", name, a.explain(err))
	case err != nil:
		return nil, fmt.Errorf("get Application %s/%s: %w", namespace, name, a.explain(err))
	case len(list.Items) == 0:
		return nil, fmt.Errorf("Application %s not found in %s: run `argocd-agentctl search name=%[1]s`", name, a.cluster)
	case len(list.Items) > 1:
		var all []string
		for i := range list.Items {
			all = append(all, "app/"+list.Items[i].GetNamespace()+"/"+name)
		}
		return nil, fmt.Errorf("there are %d Applications %s: use %s", len(all), name, shortList(all, 8))
	}
	return &list.Items[0], nil
}

// agentOf returns the agent to whose namespace or destination an Application belongs.
func (a agents) agentOf(ctx context.Context, app *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	list, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	destination, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "name")
	for _, belongs := range []func(*v1alpha1.Agent) bool{
		func(agent *v1alpha1.Agent) bool {
			return agentrows.HubNamespace(agent) == app.GetNamespace() && kind.Mapping(agent.Spec.Mapping) != kind.ByDestination
		},
		func(agent *v1alpha1.Agent) bool { return agent.Name == destination },
	} {
		if i := slices.IndexFunc(list.Items, func(agent v1alpha1.Agent) bool { return belongs(&agent) }); i >= 0 {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("Application %s/%s belongs to no agent: its namespace is that of no agent, and its destination names none", app.GetNamespace(), app.GetName())
}

// sentUID returns the UID under which the principal sends an Application: its own or, if `hub rebuild` restored it, that of the
// Application that it replaces.
func sentUID(app *unstructured.Unstructured) string {
	annotations := app.GetAnnotations()
	if annotations[kind.PrincipalUID] == "" || annotations[kind.AgentNameAnnotation] != "" {
		return string(app.GetUID())
	}
	return cmp.Or(annotations[kind.SourceUID], string(app.GetUID()))
}

// deliveryOf is the response of the search API.
type deliveryOf struct {
	Delivery *delivery `json:"delivery"`
}

type delivery struct {
	Sent          time.Time `json:"sent"`
	Acknowledged  time.Time `json:"acknowledged"`
	HandledMillis int64     `json:"handledMillis"`
	Code          string    `json:"code"`
}

// trace is the last change of an Application.
type trace struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Agent     string       `json:"agent"`
	Mode      string       `json:"mode"`
	Edited    *time.Time   `json:"edited,omitempty"`
	EditedBy  string       `json:"editedBy,omitempty"` // field manager
	Stages    []traceStage `json:"stages"`
	Seconds   float64      `json:"seconds"` // of the stages that are known
}

// traceStage is a part of the way of a change.
type traceStage struct {
	Stage   string   `json:"stage"`
	Seconds *float64 `json:"seconds,omitempty"` // if nil, unknown
	Share   *float64 `json:"share,omitempty"`   // of the known stages
	Note    string   `json:"note,omitempty"`
}

// clockTolerance is how much a time of the workload cluster may be too early: it has a precision of one second, as has the
// difference of the clocks.
const clockTolerance = 2 * time.Second

// traceOf derives the stages. unknown is why d is nil, if it is an error.
func traceOf(app *unstructured.Unstructured, agent *v1alpha1.Agent, d *delivery, unknown error) trace {
	t := trace{Namespace: app.GetNamespace(), Name: app.GetName(), Agent: agent.Name, Mode: agent.Spec.Mode}
	if agent.Spec.Mode == string(kind.Autonomous) { // the hub does not know the edit
		t.addUnknown("hub transport spoke", "the Application is written on the workload cluster: for its way to the hub, use traces (--otlp-address)")
		t.controlled(app, agent, time.Time{}, time.Time{})
	} else {
		at, by := lastEdit(app)
		if !at.IsZero() {
			t.Edited, t.EditedBy = &at, by
		}
		if arrived, ok := t.delivered(at, d, unknown); ok {
			t.controlled(app, agent, at, arrived)
		} else {
			t.addUnknown("compare sync", "the change is not stored on the workload cluster")
		}
	}
	for i := range t.Stages {
		if s := t.Stages[i].Seconds; s != nil {
			t.Seconds += *s
		}
	}
	for i := range t.Stages {
		if s := t.Stages[i].Seconds; s != nil && t.Seconds > 0 {
			share := *s / t.Seconds
			t.Stages[i].Share = &share
		}
	}
	return t
}

func (t *trace) add(stage string, took time.Duration, note string) {
	seconds := max(took, 0).Seconds()
	t.Stages = append(t.Stages, traceStage{Stage: stage, Seconds: &seconds, Note: note})
}

func (t *trace) addUnknown(stages, note string) {
	for stage := range strings.FieldsSeq(stages) {
		t.Stages = append(t.Stages, traceStage{Stage: stage, Note: note})
	}
}

// delivered adds the stages until the change is stored on the workload cluster. It returns when that was, or zero if that
// is not known, and whether it may be stored there.
func (t *trace) delivered(edited time.Time, d *delivery, unknown error) (arrived time.Time, stored bool) {
	const stages = "hub transport spoke"
	earlier := ""
	switch {
	case unknown != nil:
		t.addUnknown(stages, unknown.Error())
		return time.Time{}, true
	case d == nil:
		t.addUnknown(stages, "this principal replica has not sent the Application since its start, or has forgotten it: change the Application, or use --server for the replica with the session")
		return time.Time{}, true
	case edited.IsZero():
		t.addUnknown("hub", "the API server has no time of the edit (metadata.managedFields)")
	case edited.After(d.Sent.Add(clockTolerance)):
		t.addUnknown("hub", "the last edit was after the last delivery: it concerns nothing that is replicated, or was not sent yet")
		earlier = "of an earlier change"
	default:
		t.add("hub", d.Sent.Sub(edited), "")
	}
	if d.Acknowledged.IsZero() {
		t.addUnknown("transport spoke", "the agent has not acknowledged it: run `argocd-agentctl pending "+t.Agent+"`")
		return time.Time{}, false
	}
	took, handled := d.Acknowledged.Sub(d.Sent), time.Duration(d.HandledMillis)*time.Millisecond
	result := earlier
	if d.Code != "" {
		result = "rejected: " + d.Code
	}
	if d.HandledMillis == 0 {
		t.addUnknown("transport", "part of the next stage: the agent does not report its own time; upgrade it")
		t.add("spoke", took, result)
	} else {
		t.add("transport", took-handled, earlier)
		t.add("spoke", handled, result)
	}
	return d.Acknowledged, d.Code == ""
}

// controlled adds the stages of the application controller. If it is not known when the change has arrived, arrived is
// zero, and what happened after the edit counts.
func (t *trace) controlled(app *unstructured.Unstructured, agent *v1alpha1.Agent, edited, arrived time.Time) {
	skew := time.Duration(0)
	if agent.Status.ClockSkewSeconds != nil {
		skew = time.Duration(*agent.Status.ClockSkewSeconds) * time.Second
	}
	when := func(path ...string) time.Time {
		text, _, _ := unstructured.NestedString(app.Object, append([]string{"status"}, path...)...)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}
		}
		return at.Add(-skew)
	}
	started, finished, compared := when("operationState", "startedAt"), when("operationState", "finishedAt"), when("reconciledAt")
	begin, note := arrived, ""
	if arrived.IsZero() {
		begin, note = edited, "of the last operation"
	}
	after := func(at time.Time) bool { return !at.IsZero() && at.Add(clockTolerance).After(begin) }
	switch {
	case arrived.IsZero():
		t.addUnknown("compare", "begins when the change is stored on the workload cluster, which is not known")
	case after(started):
		t.add("compare", started.Sub(arrived), "")
	case after(compared):
		t.add("compare", compared.Sub(arrived), "at most: the controller compares again every few minutes")
	default:
		t.addUnknown("compare", "the hub has no later status: check the application controller of the workload cluster")
	}
	switch {
	case !after(started):
		t.addUnknown("sync", "no operation since the change: nothing differed, or the Application waits for a sync")
	case finished.Before(started):
		t.addUnknown("sync", "the operation is running")
	default:
		t.add("sync", finished.Sub(started), note)
	}
}

// lastEdit returns when and by whom the spec of an Application was last written, without principal and agent.
func lastEdit(app *unstructured.Unstructured) (at time.Time, by string) {
	for _, m := range app.GetManagedFields() {
		var owned map[string]json.RawMessage
		if m.Time == nil || m.FieldsV1 == nil || m.Manager == "argocd-agent" || json.Unmarshal(m.FieldsV1.Raw, &owned) != nil || owned["f:spec"] == nil {
			continue
		}
		if m.Time.After(at) {
			at, by = m.Time.Time, m.Manager
		}
	}
	return at, by
}

func (p *Program) showTrace(t trace) error {
	v := view{object: t, headings: []string{"STAGE", "DURATION", "SHARE", "NOTE"}}
	for _, s := range t.Stages {
		row := []cell{c(s.Stage), {"unknown", yellow}, c(""), c(s.Note)}
		if s.Seconds != nil {
			row[1] = c(time.Duration(*s.Seconds * float64(time.Second)).Round(time.Millisecond).String())
		}
		if s.Share != nil {
			row[2] = c(fmt.Sprintf("%.0f %%", *s.Share*100))
		}
		v.names, v.rows = append(v.names, s.Stage), append(v.rows, row)
	}
	if p.output == asTable || p.output == asWide {
		edited := "at an unknown time"
		if t.Edited != nil {
			edited = t.Edited.UTC().Format(time.RFC3339) + " by " + cmp.Or(t.EditedBy, "an unknown manager")
		}
		p.say("Application %s/%s, agent %s, edited %s", t.Namespace, t.Name, t.Agent, edited)
	}
	return p.show(v)
}
