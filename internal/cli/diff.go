package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// divergence is one item that is not the same on both sides.
type divergence struct {
	Kind   string  `json:"kind"`
	Name   string  `json:"name"`  // as the side that owns it calls it
	State  string  `json:"state"` // differs, missing, extra, foreign or not sent
	On     string  `json:"on"`    // the side that is to be made equal: hub or cluster
	Fields []field `json:"fields,omitempty"`
}

func (p *Program) diffCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "diff AGENT",
		Short: "Show what differs between the hub and an agent's cluster",
		Long: `Reads both sides and shows what differs, by the same rules by which principal and agent compare: names are mapped,
and what each side keeps to itself is left out. A healthy agent has nothing to show for longer than a moment; what
stays is explained by ` + "`argocd-agentctl pending`" + `. Values of repository credentials are never shown.

  differs   the copy is not like the original
  missing   there is no copy
  extra     there is a copy and no original
  foreign   something that is not ours has the copy's name
  not sent  the original cannot be sent; its condition says why, and the copy stays as it is

The exit code is 3 if there is a difference.`,
		Example: `  argocd-agentctl diff w1 --principal-context hub --agent-context w1
  argocd-agentctl diff w1 --agent-context w1 -o name`,
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
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
				return fmt.Errorf("agent %s has no mode yet: it has never connected, so nothing is compared", agent.Name)
			}
			found, equal, err := compare(cmd.Context(), hub, spoke, agent)
			if err != nil {
				return err
			}
			return p.showDiff(format, found, equal)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// end is one side of a comparison.
type end struct {
	world   *kind.Env
	objects map[kind.Resource][]*kind.Object
}

// compare reads both sides and compares them, kind by kind.
func compare(ctx context.Context, hub, spoke *cluster, agent *v1alpha1.Agent) (found []divergence, equal int, err error) {
	w, err := hub.hubWorld(ctx, agent)
	if err != nil {
		return nil, 0, err
	}
	w.SpokeArgoNamespace = spoke.namespace
	set, err := spoke.agentSettings(ctx)
	if err != nil {
		return nil, 0, err
	}
	there := *w
	there.Side = kind.Spoke
	there.Settings = kind.Settings{AllowedNamespaces: commaList(set.get("allowed-namespaces"))}
	if text := set.get("label-selector"); text != "" {
		if there.Settings.LabelSelector, err = kind.ParseSelector(text); err != nil {
			return nil, 0, fmt.Errorf("the agent's --label-selector: %w", err)
		}
	}
	ends := [2]*end{kind.Hub: {world: w}, kind.Spoke: {world: &there}}
	apps := [2]string{kind.Hub: applicationNamespace(w), kind.Spoke: spoke.namespace}
	if w.Agent.Mapping == kind.ByDestination || len(there.Settings.AllowedNamespaces) > 0 {
		apps[kind.Spoke] = ""
	}
	for side, c := range map[kind.Side]*cluster{kind.Hub: hub, kind.Spoke: spoke} {
		if err := ends[side].read(ctx, c, apps[side]); err != nil {
			return nil, 0, err
		}
	}
	for _, k := range kind.All() {
		owner, replica := kind.Hub, kind.Spoke
		if w.Agent.Mode == kind.Autonomous || k.Scope() == kind.StatusScope {
			owner, replica = kind.Spoke, kind.Hub
		}
		if k.Scope() == kind.CommandScope || w.Agent.Mode == kind.Autonomous && (k.Scope() == kind.RepositoryScope || k.Scope() == kind.GPGKeyScope) {
			continue // not state; or never leaves the cluster
		}
		more, same := compareKind(k, ends[owner], ends[replica])
		found, equal = append(found, more...), equal+same
	}
	return found, equal, nil
}

// read reads everything that kinds read.
func (e *end) read(ctx context.Context, c *cluster, applications string) error {
	e.objects = map[kind.Resource][]*kind.Object{}
	for _, one := range []struct {
		resource            kind.Resource
		namespace, selector string
	}{
		{kind.AppProjects, c.namespace, ""}, {kind.ConfigMaps, c.namespace, ""}, {kind.Applications, applications, ""},
		{kind.Secrets, c.namespace, "argocd.argoproj.io/secret-type in (repository,repo-creds)"},
	} {
		objects, err := c.objects(ctx, one.resource, one.namespace, one.selector)
		if err != nil {
			return err
		}
		e.objects[one.resource] = objects
	}
	e.world.Find = finder(e.objects)
	return nil
}

// compareKind compares what the owner publishes with what the replica holds.
func compareKind(k kind.Kind, owner, replica *end) (found []divergence, equal int) {
	items := map[engine.Key]kind.Item{}
	var order []engine.Key
	for _, o := range owner.objects[k.Resource()] {
		if !k.Matches(o) {
			continue
		}
		if item, ok := k.Publish(o, owner.world); ok {
			items[item.Key] = item
			order = append(order, item.Key)
		}
	}
	held := map[engine.Key]kind.ReplicaItem{}
	for _, o := range replica.objects[k.Resource()] {
		if !k.Matches(o) {
			continue
		}
		h, ok := k.ReadReplica(o, replica.world)
		if !ok {
			continue
		}
		held[h.Key] = h
		if _, published := items[h.Key]; !published && h.Ownership.Owned && k.Scope() != kind.StatusScope {
			order = append(order, h.Key)
		}
	}
	slices.SortFunc(order, func(a, b engine.Key) int { return strings.Compare(a.String(), b.String()) })
	on := map[kind.Side]string{kind.Hub: "hub", kind.Spoke: "cluster"}[replica.world.Side]
	for _, key := range order {
		item, published := items[key]
		h, present := held[key]
		d := divergence{Kind: k.Scope(), Name: nameOn(k, key, owner.world), On: on}
		switch {
		case !published:
			d.State = "extra"
		case kind.IsFrozen(item.Content):
			d.State = "frozen"
		case !present && k.Scope() == kind.StatusScope:
			continue // no Application, no status: that is told of the Application
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
			d.Fields = differences(item.Content, h.Content, owner.world.Side == kind.Hub, k.Scope() == kind.RepositoryScope)
		}
		found = append(found, d)
	}
	return found, equal
}

// same reports whether a copy is what it should be, or what became of that when it was stored, if no field was lost.
func same(content []byte, h *kind.ReplicaItem) bool {
	if bytes.Equal(content, h.Content) {
		return true
	}
	return len(h.Ownership.Alias.Lost) == 0 && h.Ownership.Alias.Written == engine.VersionOf(content) && h.Ownership.Alias.Stored == engine.VersionOf(h.Content)
}

// nameOn is what a side calls the object of a key.
func nameOn(k kind.Kind, key engine.Key, w *kind.Env) string {
	ref, err := k.Target(key, w)
	if err != nil {
		return key.String()
	}
	return ref.Namespace + "/" + ref.Name
}

func (p *Program) showDiff(format string, found []divergence, equal int) error {
	if found == nil {
		found = []divergence{}
	}
	var b strings.Builder
	v := view{object: found}
	for _, d := range found {
		v.names = append(v.names, d.Kind+" "+d.Name)
		fmt.Fprintf(&b, "%s %s  %s on the %s\n", d.Kind, printable(d.Name), p.colour(bad, d.State), d.On)
		for _, f := range d.Fields {
			fmt.Fprintf(&b, "  %s\n    %s %s\n    %s %s\n", printable(f.Path), p.colour(faint, "hub    "), printable(f.Hub), p.colour(faint, "cluster"), printable(f.Cluster))
		}
	}
	fmt.Fprintf(&b, "%d items are the same on both sides, %d are not\n", equal, len(found))
	v.text = b.String()
	if err := p.show(format, v); err != nil || len(found) == 0 {
		return err
	}
	return findingsError{}
}
