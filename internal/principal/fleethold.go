package principal

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// fleetHolds connects the node's check of removals across all agents with the
// cluster. The node decides; what all principal replicas share of it is in
// ConfigMap argocd-agent-fleet-hold, and in their Leases.
type fleetHolds struct {
	client         *kube.Client
	namespace      string
	tasks          *taskRunner
	post           func(context.Context, reconcile.Input) error
	withReconciler func(context.Context, func(*reconcile.Reconciler)) error
	others         func() (reconcile.FleetOthers, bool) // what other replicas have; false: not known yet
	jitter         func() float64
	log            *slog.Logger

	mu     sync.Mutex
	status reconcile.FleetStatus // as of the last look
}

// fleetPollInterval is how often other replicas are asked, and told.
const fleetPollInterval = 5 * time.Second

func (f *fleetHolds) ref() kind.Ref {
	return kind.Ref{Resource: kind.ConfigMaps, Namespace: f.namespace, Name: v1alpha1.FleetHold}
}

// now returns what the node knew at the last look.
func (f *fleetHolds) now() reconcile.FleetStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// follow tells the node what is recorded.
func (f *fleetHolds) follow(ctx context.Context) error {
	said := reconcile.FleetRecord{}
	return kube.WatchObject(ctx, f.client, f.ref(), f.log, f.jitter, func(o *kind.Object) {
		record := readFleetHold(o)
		if record.Confirmed && record != said {
			f.log.InfoContext(ctx, "Hold of removals on many agents was confirmed", "id", record.ID)
		}
		said = record
		_ = f.post(ctx, record) // fails at the end
	})
}

// readFleetHold reads the ConfigMap; of nil, nothing is held.
func readFleetHold(o *kind.Object) reconcile.FleetRecord {
	if o == nil {
		return reconcile.FleetRecord{}
	}
	data, _ := rawjson.StringMap(o.Get("data")) // none: it is over
	id := data[v1alpha1.FleetHoldID]
	return reconcile.FleetRecord{ID: id, Settings: data[v1alpha1.FleetHoldSettings], Confirmed: id != "" && o.Annotation(v1alpha1.ConfirmAnnotation) == id}
}

// run looks at the node and at other replicas now and then. The host fails at the
// end only.
func (f *fleetHolds) run(ctx context.Context) error {
	var told *reconcile.FleetOthers
	for {
		_ = f.withReconciler(ctx, func(n *reconcile.Reconciler) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.status = n.Fleet()
		})
		if others, known := f.others(); known && (told == nil || *told != others) {
			told = &others
			_ = f.post(ctx, others)
		}
		if !sleep(ctx, fleetPollInterval) {
			return nil
		}
	}
}

// record writes down what the node has decided.
func (f *fleetHolds) record(e reconcile.RecordFleetHold) {
	log := f.log.With("id", e.Record.ID)
	if e.Over {
		log.Info("Hold of removals on many agents is over")
	} else {
		log.Warn("Removals on many agents are held until a user confirms them", "agents", e.Totals.Affected, "compared", e.Totals.Compared,
			"items", e.Totals.Items, "confirm", fleetConfirmCommand(f.namespace, e.Record.ID))
	}
	f.tasks.add("fleet hold", func(ctx context.Context) error { return f.write(ctx, e) })
}

// write changes the ConfigMap, if that has not become something else meanwhile.
func (f *fleetHolds) write(ctx context.Context, e reconcile.RecordFleetHold) error {
	there, err := f.client.Get(ctx, f.ref())
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", v1alpha1.FleetHold, err)
	}
	change := fleetHoldChange(f.namespace, there, e, time.Now())
	switch {
	case change == nil:
		return nil
	case there == nil:
		change["apiVersion"], change["kind"] = "v1", "ConfigMap"
		_, err = f.client.Create(ctx, f.ref(), change)
	default:
		_, err = f.client.Patch(ctx, f.ref(), change)
	}
	if err != nil { // a conflict as well: then it is read again
		return fmt.Errorf("write ConfigMap %s: %w", v1alpha1.FleetHold, err)
	}
	return nil
}

// fleetHoldChange is what has to change in the ConfigMap, or the whole of one that
// is not there; nil: nothing. Of two replicas that record a hold at once the first
// has the ID. A hold under other settings is replaced.
func fleetHoldChange(namespace string, there *kind.Object, e reconcile.RecordFleetHold, now time.Time) map[string]any {
	is := readFleetHold(there)
	metadata := map[string]any{"name": v1alpha1.FleetHold, "namespace": namespace}
	if there == nil {
		metadata["labels"] = map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
	} else {
		metadata["resourceVersion"] = there.ResourceVersion() // as it was read, or not at all
	}
	if e.Over {
		if there == nil || is.ID != e.Record.ID {
			return nil
		}
		metadata["annotations"] = map[string]any{v1alpha1.ConfirmAnnotation: nil}
		gone := map[string]any{}
		data, _ := rawjson.StringMap(there.Get("data")) // there is an ID
		for key := range data {
			gone[key] = nil
		}
		return map[string]any{"metadata": metadata, "data": gone}
	}
	if is.ID != "" && is.ID != e.Record.ID && is.Settings == e.Record.Settings {
		return nil
	}
	data := map[string]any{
		v1alpha1.FleetHoldID: e.Record.ID, v1alpha1.FleetHoldSettings: e.Record.Settings,
		v1alpha1.FleetHoldAgents: strconv.Itoa(e.Totals.Affected), v1alpha1.FleetHoldCompared: strconv.Itoa(e.Totals.Compared), v1alpha1.FleetHoldItems: strconv.Itoa(e.Totals.Items),
		v1alpha1.FleetHoldSample: clip(fleetSample(e.Sample), 4096),
	}
	if is.ID != e.Record.ID {
		data[v1alpha1.FleetHoldSince] = now.UTC().Format(time.RFC3339)
		if there != nil {
			metadata["annotations"] = map[string]any{v1alpha1.ConfirmAnnotation: nil} // of another one
		}
	}
	return map[string]any{"metadata": metadata, "data": data}
}

// fleetSample is a line for each item. Names come from agents.
func fleetSample(items []string) string {
	lines := make([]string, 0, len(items))
	for _, one := range items {
		lines = append(lines, clip(oneLine(one), 256))
	}
	return strings.Join(lines, "\n")
}

// fleetConfirmCommand is how a user confirms a hold of many agents.
func fleetConfirmCommand(namespace, id string) string {
	return fmt.Sprintf("kubectl annotate configmap -n %s %s --overwrite %s=%s", namespace, v1alpha1.FleetHold, v1alpha1.ConfirmAnnotation, id)
}

// metrics tells how many agents would lose items.
func (f *fleetHolds) metrics() []observe.Metric {
	s := f.now()
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
