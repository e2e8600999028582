package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// divergence is one item that differs between the sides.
type divergence struct {
	Kind   string  `json:"kind"`
	Name   string  `json:"name"`  // on the owner
	State  string  `json:"state"` // differs, missing, extra, foreign or not sent
	On     string  `json:"on"`    // the replica: hub or cluster
	Fields []field `json:"fields,omitempty"`
}

func (p *Program) diffCommand() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "diff AGENT",
		Short: "Show differences between the hub and a workload cluster",
		Long: `Reads both sides and shows differences. It uses the same projections and name mappings as principal and agent. With
a healthy agent, differences disappear quickly. For differences that stay, see ` + "`argocd-agentctl pending`" + `. Values of
repository credentials are not shown.

  differs   the replica differs from the owner's object
  missing   the replica does not exist
  extra     the replica exists, but the owner's object does not
  foreign   an object without our ownership annotation has the name of the replica
  frozen    the Application must not run on this agent
  not sent  the owner's object cannot be sent, see its conditions

The exit code is 3 if there is a difference.`,
		Example: `  argocd-agentctl diff w1 --principal-context hub --agent-context w1
  argocd-agentctl diff w1 --agent-context w1 -o name`,
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, spoke, err := p.bothSides()
			if err != nil {
				return err
			}
			agent, err := (agents{hub}).get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if agent.Spec.Mode == "" {
				return fmt.Errorf("agent %s has no mode yet because it has never connected", agent.Name)
			}
			found, equal, err := compare(cmd.Context(), hub, spoke, agent)
			if err != nil {
				return err
			}
			return p.showDiff(found, equal)
		},
	})
}

type snapshot struct {
	env     *kind.Env
	objects map[kind.Resource][]*kind.Object
}

func compare(ctx context.Context, hub, spoke *cluster, agent *v1alpha1.Agent) (found []divergence, equal int, err error) {
	w, err := hub.hubEnv(ctx, agent)
	if err != nil {
		return nil, 0, err
	}
	w.SpokeArgoNamespace = spoke.namespace
	set, err := spoke.agentSettings(ctx)
	if err != nil {
		return nil, 0, err
	}
	spokeEnv := *w
	spokeEnv.Side = kind.Spoke
	spokeEnv.Settings = kind.Settings{AllowedNamespaces: commaList(set.get("allowed-namespaces"))}
	if spokeEnv.Settings.LabelSelector, err = set.labelSelector(); err != nil {
		return nil, 0, err
	}
	sides := [2]*snapshot{kind.Hub: {env: w}, kind.Spoke: {env: &spokeEnv}}
	apps := [2]string{kind.Hub: applicationNamespace(w), kind.Spoke: spoke.namespace}
	if w.Agent.Mapping == kind.ByDestination || len(spokeEnv.Settings.AllowedNamespaces) > 0 {
		apps[kind.Spoke] = ""
	}
	for side, c := range map[kind.Side]*cluster{kind.Hub: hub, kind.Spoke: spoke} {
		if err := sides[side].read(ctx, c, apps[side]); err != nil {
			return nil, 0, err
		}
	}
	w.Pushing = func(string) []*kind.Object { return sides[kind.Hub].objects[kind.Applications] }
	for _, k := range kind.All() {
		t := k.Traits()
		if t.Style == engine.OneShot || !t.In(w.Agent.Mode) {
			continue
		}
		owner, replica := kind.Hub, kind.Spoke
		if t.OwnerIn(w.Agent.Mode) == kind.Spoke {
			owner, replica = kind.Spoke, kind.Hub
		}
		more, same := compareKind(k, sides[owner], sides[replica])
		found, equal = append(found, more...), equal+same
	}
	return found, equal, nil
}

func (e *snapshot) read(ctx context.Context, c *cluster, applications string) error {
	e.objects = map[kind.Resource][]*kind.Object{}
	for _, w := range kind.Watches(kind.All()) {
		namespace := c.namespace
		if w.AnyNamespace {
			namespace = applications
		}
		objects, err := c.objects(ctx, w.Resource, namespace, w.Selector)
		if err != nil {
			return err
		}
		e.objects[w.Resource] = objects
	}
	e.env.Find = finder(e.objects)
	return nil
}

// compareKind compares the items of the owner with the objects of the replica.
func compareKind(k kind.Kind, owner, replica *snapshot) (found []divergence, equal int) {
	held := map[engine.Key]kind.ReplicaItem{}
	for _, o := range replica.objects[k.Resource()] {
		if !k.Matches(o) {
			continue
		}
		if h, ok := k.ReadReplica(o, replica.env); ok {
			held[h.Key] = h
		}
	}
	return compareItems(k, owner, held, replica.env.Side)
}

// compareItems compares the items of the owner with what the replica has.
func compareItems(k kind.Kind, owner *snapshot, held map[engine.Key]kind.ReplicaItem, replica kind.Side) (found []divergence, equal int) {
	attached := k.Traits().Style == engine.Attached
	items := map[engine.Key]kind.Item{}
	var order []engine.Key
	for _, o := range owner.objects[k.Resource()] {
		if !k.Matches(o) {
			continue
		}
		if item, ok := k.Publish(o, owner.env); ok {
			items[item.Key] = item
			order = append(order, item.Key)
		}
	}
	for key := range held {
		if _, published := items[key]; !published && held[key].Ownership.Owned && !attached {
			order = append(order, key)
		}
	}
	slices.SortFunc(order, func(a, b engine.Key) int { return strings.Compare(a.String(), b.String()) })
	on := map[kind.Side]string{kind.Hub: "hub", kind.Spoke: "cluster"}[replica]
	for _, key := range order {
		item, published := items[key]
		h, present := held[key]
		d := divergence{Kind: k.Scope(), Name: nameOn(k, key, owner.env), On: on}
		switch {
		case !published:
			d.State = "extra"
		case kind.IsFrozen(item.Content):
			d.State = "frozen"
		case !present && attached:
			continue // the missing Application is reported
		case item.Unsendable != "":
			d.State = "not sent"
		case !present:
			d.State = "missing"
		case !h.Ownership.Owned:
			d.State = "foreign"
		case same(item.Content, &h):
			equal++
			continue
		default:
			d.State = "differs"
			d.Fields = differences(item.Content, h.Content, owner.env.Side == kind.Hub, k.Traits().Credentials)
		}
		found = append(found, d)
	}
	return found, equal
}

// same reports whether a replica has the content, or the form in which the API server stored it without losing a field.
func same(content []byte, h *kind.ReplicaItem) bool {
	if bytes.Equal(content, h.Content) {
		return true
	}
	return len(h.Ownership.Alias.Lost) == 0 && h.Ownership.Alias.Written == engine.VersionOf(content) && h.Ownership.Alias.Stored == engine.VersionOf(h.Content)
}

// nameOn returns the name of an item on one side.
func nameOn(k kind.Kind, key engine.Key, w *kind.Env) string {
	ref, err := k.Target(key, w)
	if err != nil {
		return key.String()
	}
	return ref.Namespace + "/" + ref.Name
}

func (p *Program) showDiff(found []divergence, equal int) error {
	if found == nil {
		found = []divergence{}
	}
	var b strings.Builder
	v := view{object: found}
	for _, d := range found {
		v.names = append(v.names, d.Kind+" "+d.Name)
		fmt.Fprintf(&b, "%s %s  %s on the %s\n", d.Kind, printable(d.Name), p.paint(red, d.State), d.On)
		for _, f := range d.Fields {
			fmt.Fprintf(&b, "  %s\n    %s %s\n    %s %s\n", printable(f.Path), p.paint(faint, "hub    "), printable(f.Hub), p.paint(faint, "cluster"), printable(f.Cluster))
		}
	}
	fmt.Fprintf(&b, "%d items are in sync, %d differ\n", equal, len(found))
	v.text = b.String()
	if err := p.show(v); err != nil || len(found) == 0 {
		return err
	}
	return findingsError{}
}

// field is one difference between two objects.
type field struct {
	Path    string `json:"path"`
	Hub     string `json:"hub"`
	Cluster string `json:"cluster"`
}

// maxFields limits the differences per object.
const maxFields = 20

// differences lists the fields in which two contents differ. Values of secrets are hidden.
func differences(owner, replica []byte, ownerIsHub, secret bool) []field {
	var a, b any
	if json.Unmarshal(owner, &a) != nil || json.Unmarshal(replica, &b) != nil {
		return nil
	}
	if !ownerIsHub {
		a, b = b, a
	}
	var found []field
	walk("", a, b, &found)
	if secret {
		for i := range found {
			found[i].Hub, found[i].Cluster = "(hidden)", "(hidden)"
		}
	}
	if len(found) > maxFields {
		found = append(found[:maxFields:maxFields], field{Path: "and " + strconv.Itoa(len(found)-maxFields) + " more"})
	}
	return found
}

func walk(path string, a, b any, found *[]field) {
	if reflect.DeepEqual(a, b) {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := maps.Clone(x)
			maps.Copy(keys, y)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				walk(strings.TrimPrefix(path+"."+key, "."), x[key], y[key], found)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				walk(path+"["+strconv.Itoa(i)+"]", x[i], y[i], found)
			}
			return
		}
	}
	*found = append(*found, field{Path: path, Hub: shown(a), Cluster: shown(b)})
}

// shown prints a value on one line of limited length.
func shown(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "(unreadable)"
	}
	const limit = 160
	if runes := []rune(string(text)); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return string(text)
}
