package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// HoldConfig is what a Hold needs.
type HoldConfig struct {
	Client    *kube.Client
	Namespace string
	Replicas  *Replicas
	Post      func(context.Context, reconcile.Input) error
	Do        func(context.Context, func(*reconcile.Reconciler)) error // calls a function with the reconciler
	AddTask   AddTask
	Log       *slog.Logger
}

// Hold stores the hold of removals on many agents. The reconciler decides on it. All principal replicas share it in
// ConfigMap argocd-agent-fleet-hold, and the totals of their agents in their Leases.
type Hold struct{ cfg HoldConfig }

// NewHold returns a Hold.
func NewHold(cfg HoldConfig) *Hold { return &Hold{cfg} }

// fleetPollInterval is how often totals are exchanged with other replicas.
const fleetPollInterval = 5 * time.Second

func (f *Hold) ref() kind.Ref {
	return kind.Ref{Resource: kind.ConfigMaps, Namespace: f.cfg.Namespace, Name: v1alpha1.FleetHold}
}

// Sink returns the sink of the watch of the namespace's ConfigMaps. It posts the stored hold to the reconciler.
func (f *Hold) Sink() kube.Sink {
	last := reconcile.FleetRecord{}
	return kube.ObjectSink(v1alpha1.FleetHold, func(ctx context.Context, o *kind.Object) {
		record := readFleetHold(o)
		if record.Confirmed && record != last {
			f.cfg.Log.InfoContext(ctx, "Hold of removals on many agents was confirmed", "id", record.ID)
		}
		last = record
		_ = f.cfg.Post(ctx, record) // fails if ctx ended
	})
}

// readFleetHold reads the ConfigMap. If o is nil, nothing is held.
func readFleetHold(o *kind.Object) reconcile.FleetRecord {
	if o == nil {
		return reconcile.FleetRecord{}
	}
	data, _ := rawjson.StringMap(o.Get("data")) // empty if the hold ended
	id := data[v1alpha1.FleetHoldID]
	return reconcile.FleetRecord{ID: id, Settings: data[v1alpha1.FleetHoldSettings], Confirmed: id != "" && o.Annotation(v1alpha1.ConfirmAnnotation) == id}
}

// Run exchanges totals with other replicas until ctx ends.
func (f *Hold) Run(ctx context.Context) error {
	var posted *reconcile.FleetOthers
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		_ = f.cfg.Do(ctx, func(n *reconcile.Reconciler) { f.cfg.Replicas.setFleet(n.Fleet()) }) // fails if ctx ended
		if others, known := f.cfg.Replicas.others(); known && (posted == nil || *posted != others) {
			posted = &others
			_ = f.cfg.Post(ctx, others)
		}
	}, fleetPollInterval)
	return nil
}

// Record stores a decision of the reconciler.
func (f *Hold) Record(e reconcile.RecordFleetHold) {
	log := f.cfg.Log.With("id", e.Record.ID)
	if e.Over {
		log.Info("Hold of removals on many agents ended")
	} else {
		log.Warn("Removals on many agents are held until a user confirms them", "agents", e.Totals.Affected, "compared", e.Totals.Compared,
			"items", e.Totals.Items, "confirm", fleetConfirmCommand(f.cfg.Namespace, e.Record.ID))
	}
	f.cfg.AddTask("fleet hold", func(ctx context.Context) error { return f.write(ctx, e) })
}

func (f *Hold) write(ctx context.Context, e reconcile.RecordFleetHold) error {
	current, err := f.cfg.Client.Get(ctx, f.ref())
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", v1alpha1.FleetHold, err)
	}
	change := fleetHoldChange(f.cfg.Namespace, current, e, time.Now())
	switch {
	case change == nil:
		return nil
	case current == nil:
		change["apiVersion"], change["kind"] = "v1", "ConfigMap"
		_, err = f.cfg.Client.Create(ctx, f.ref(), change)
	default:
		_, err = f.cfg.Client.Patch(ctx, f.ref(), change)
	}
	if err != nil { // the task reads it again, also after a conflict
		return fmt.Errorf("write ConfigMap %s: %w", v1alpha1.FleetHold, err)
	}
	return nil
}

// fleetHoldChange returns the change of the ConfigMap, or the new ConfigMap if current is nil. It returns nil if nothing
// changes. If two replicas record a hold at the same time, the ID of the first counts. A hold under other settings is
// replaced.
func fleetHoldChange(namespace string, current *kind.Object, e reconcile.RecordFleetHold, now time.Time) map[string]any {
	is := readFleetHold(current)
	metadata := map[string]any{"name": v1alpha1.FleetHold, "namespace": namespace}
	if current == nil {
		metadata["labels"] = map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
	} else {
		metadata["resourceVersion"] = current.ResourceVersion()
	}
	if e.Over {
		if current == nil || is.ID != e.Record.ID {
			return nil
		}
		metadata["annotations"] = map[string]any{v1alpha1.ConfirmAnnotation: nil}
		removed := map[string]any{}
		data, _ := rawjson.StringMap(current.Get("data"))
		for key := range data {
			removed[key] = nil
		}
		return map[string]any{"metadata": metadata, "data": removed}
	}
	if is.ID != "" && is.ID != e.Record.ID && is.Settings == e.Record.Settings {
		return nil
	}
	data := map[string]any{
		v1alpha1.FleetHoldID: e.Record.ID, v1alpha1.FleetHoldSettings: e.Record.Settings,
		v1alpha1.FleetHoldAgents: strconv.Itoa(e.Totals.Affected), v1alpha1.FleetHoldCompared: strconv.Itoa(e.Totals.Compared), v1alpha1.FleetHoldItems: strconv.Itoa(e.Totals.Items),
		v1alpha1.FleetHoldSample: text.Truncate(fleetSample(e.Sample), 4096),
	}
	if is.ID != e.Record.ID {
		data[v1alpha1.FleetHoldSince] = now.UTC().Format(time.RFC3339)
		if current != nil {
			metadata["annotations"] = map[string]any{v1alpha1.ConfirmAnnotation: nil} // of another hold
		}
	}
	return map[string]any{"metadata": metadata, "data": data}
}

// fleetSample returns one line per item. Agents choose the names.
func fleetSample(items []string) string {
	lines := make([]string, 0, len(items))
	for _, one := range items {
		lines = append(lines, text.Truncate(OneLine(one), 256))
	}
	return strings.Join(lines, "\n")
}

func fleetConfirmCommand(namespace, id string) string {
	return fmt.Sprintf("kubectl annotate configmap -n %s %s --overwrite %s=%s", namespace, v1alpha1.FleetHold, v1alpha1.ConfirmAnnotation, id)
}

// Metrics returns the metrics of the hold.
func (f *Hold) Metrics() []observe.Metric {
	s := f.cfg.Replicas.fleetStatus()
	held := 0.0
	if s.Record.ID != "" && !s.Record.Confirmed {
		held = 1
	}
	return []observe.Metric{
		observe.Gauge(metricPrefix+"_fleet_hold", "1 if removals on many agents are held until a user confirms them.", held),
		observe.Gauge(metricPrefix+"_fleet_affected_agents", "Agents of this principal that would remove items by absence, or did so in the last ten minutes.", float64(s.Affected)),
		observe.Gauge(metricPrefix+"_fleet_held_items", "Items that agents of this principal hold instead of removing them.", float64(s.Items)),
	}
}
