package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// States of agents in a plan.
const (
	agentRead       = "read"
	agentAutonomous = "autonomous" // its objects return by themselves
	agentUnread     = "not read"
	agentWithout    = "left out"
)

// Actions of objects in a plan.
const (
	rebuildCreate = "create"
	rebuildClaim  = "claim"
	rebuildExists = "exists"
	rebuildSkip   = "skip"
	rebuildRefuse = "refuse"
)

// rebuildPlan is what a rebuild of a hub does.
type rebuildPlan struct {
	Identity    string            `json:"identity"` // of the lost hub
	Agents      []rebuildAgent    `json:"agents"`
	Objects     []rebuildObject   `json:"objects"`
	Differences []agentDivergence `json:"differences"` // after the rebuild
	InSync      int               `json:"inSync"`
	Warnings    []string          `json:"warnings"`
	NotRestored []string          `json:"notRestored"`

	hub      *cluster
	flags    rebuildFlags
	existing map[kind.Resource][]*kind.Object
}

type rebuildAgent struct {
	Name    string `json:"name"`
	Mode    string `json:"mode"`
	State   string `json:"state"`
	Objects int    `json:"objects"`
	Detail  string `json:"detail,omitempty"`

	agent     *v1alpha1.Agent
	kinds     []string       // that are replicated; if empty, all
	hubs      map[string]int // replicas by identity
	session   string         // identity of the hub that the agent has a session with
	known     uint64         // generation of the lost hub
	storeHold string         // ID of the hold on the hub's store
	replicas  []reconcile.Replica
	withheld  int
	env       *kind.Env
}

type rebuildObject struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Action    string   `json:"action"`
	Agents    []string `json:"agents"`
	Detail    string   `json:"detail,omitempty"`

	ref    kind.Ref
	object *kind.Object
}

func (o *rebuildObject) name() string { return o.Kind + "/" + o.Namespace + "/" + o.Name }

// agentDivergence is a difference for one agent.
type agentDivergence struct {
	Agent string `json:"agent"`
	divergence
}

// maxKnownGeneration bounds the generation that an agent reports. The hub gets the next one, and generations are limited: one
// agent must not leave no room for promotions.
const maxKnownGeneration = 1 << 20

// blocked returns what prevents --apply and --confirm, or nil.
func (r *rebuildPlan) blocked() error {
	var unread, refused []string
	for _, a := range r.Agents {
		if a.State == agentUnread {
			unread = append(unread, a.Name)
		}
		if a.known > maxKnownGeneration {
			return fmt.Errorf("agent %s reports generation %d of the lost hub, which no hub can have had: correct annotation %s of objects and the generations in Lease argocd-agent on its cluster, or name it with --without", a.Name, a.known, kind.SourceGenerationAnnotation)
		}
		if a.withheld > 0 {
			return fmt.Errorf("agent %s withholds %s: an AgentPolicy (liveAccess.secrets) of its cluster forbids credentials, which you can allow for the rebuild, or it has accepted another hub", a.Name, pluralize(a.withheld, "object"))
		}
	}
	for _, o := range r.Objects {
		if o.Action == rebuildRefuse {
			refused = append(refused, o.name())
		}
	}
	switch {
	case len(unread) > 0:
		return fmt.Errorf("%s not read: %s. Connect them, or name them with --without", pluralize(len(unread), "agent"), shortList(unread, 8))
	case len(refused) > 0:
		return fmt.Errorf("%s not certain: %s. Correct them, or name them with --skip", pluralize(len(refused), "object"), shortList(refused, 8))
	case len(r.Differences) > 0:
		return fmt.Errorf("%s: run `argocd-agentctl hub rebuild` to see them", pluralize(len(r.Differences), "difference"))
	}
	return nil
}

// planRebuild reads the hub and the agents. It changes nothing.
func (p *Program) planRebuild(ctx context.Context, hub *cluster, f rebuildFlags) (*rebuildPlan, error) {
	plan := &rebuildPlan{hub: hub, flags: f, NotRestored: notRestored, Objects: []rebuildObject{}, Differences: []agentDivergence{}, Warnings: []string{}}
	if err := plan.findAgents(ctx); err != nil {
		return nil, err
	}
	err := hub.withSearch(ctx, f.search, func(s *searchClient) error {
		if err := plan.each(ctx, s, (*rebuildAgent).readState); err != nil {
			return err
		}
		if err := plan.identify(f.identity); err != nil {
			return err
		}
		err := plan.each(ctx, s, func(a *rebuildAgent, ctx context.Context, s *searchClient) error {
			return a.readReplicas(ctx, s, plan.Identity)
		})
		if err != nil {
			return err
		}
		return plan.readGenerations(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	if err := plan.readHub(ctx); err != nil {
		return nil, err
	}
	plan.compare(plan.restore())
	return plan, nil
}

// findAgents lists the Agents of the hub.
func (r *rebuildPlan) findAgents(ctx context.Context) error {
	list, err := (agents{r.hub}).list(ctx)
	if err != nil {
		return err
	}
	for _, name := range r.flags.without {
		if !slices.ContainsFunc(list.Items, func(a v1alpha1.Agent) bool { return a.Name == name }) {
			return fmt.Errorf("--without %s: the hub has no such Agent", name)
		}
	}
	for i := range list.Items {
		agent := &list.Items[i]
		a := rebuildAgent{Name: agent.Name, Mode: agent.Spec.Mode, State: agentRead, agent: agent, kinds: agent.Spec.Kinds}
		switch {
		case slices.Contains(r.flags.without, agent.Name):
			a.State = agentWithout
		case agent.Spec.Mode == string(kind.Autonomous):
			a.State = agentAutonomous
		case agent.Spec.Mode == "":
			a.State, a.Detail = agentUnread, "the Agent has no mode: it has never connected"
		}
		r.Agents = append(r.Agents, a)
	}
	if len(r.Agents) == 0 {
		return errors.New("the hub has no Agents: register the agents of the lost hub under their names, see `argocd-agentctl agent create`")
	}
	return nil
}

// maxAsked bounds the agents that are read at the same time. The search API allows four requests of one user.
const maxAsked = 3

// each calls do for every agent that is read. If the agent cannot be asked, it counts as not read.
func (r *rebuildPlan) each(ctx context.Context, s *searchClient, do func(*rebuildAgent, context.Context, *searchClient) error) error {
	return r.eachIn(ctx, s, agentRead, do, func(a *rebuildAgent, reason string) { a.State, a.Detail = agentUnread, reason })
}

// eachIn calls do for every agent in a state, and failed for each one that cannot be asked.
func (r *rebuildPlan) eachIn(ctx context.Context, s *searchClient, state string, do func(*rebuildAgent, context.Context, *searchClient) error, failed func(*rebuildAgent, string)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAsked)
	for i := range r.Agents {
		if a := &r.Agents[i]; a.State == state {
			group.Go(func() error {
				err := do(a, ctx, s)
				if refused, ok := errors.AsType[*searchError](err); ok && refused.code == http.StatusBadGateway {
					failed(a, refused.Message)
					return nil
				}
				return err
			})
		}
	}
	return group.Wait()
}

func (a *rebuildAgent) ask(ctx context.Context, s *searchClient, identity, after string) (page reconcile.ReplicaPage, err error) {
	return page, s.get(ctx, "/v1/agents/"+url.PathEscape(a.Name)+"/replicas", "", url.Values{"hub": {identity}, "after": {after}}, &page)
}

func (a *rebuildAgent) readState(ctx context.Context, s *searchClient) error {
	page, err := a.ask(ctx, s, "", "")
	a.hubs, a.session, a.storeHold = page.Hubs, page.Session, page.StoreHold
	return err
}

// Limits of what an agent can send.
const (
	maxReplicas     = 100_000
	maxReplicaBytes = 1 << 30
)

func (a *rebuildAgent) readReplicas(ctx context.Context, s *searchClient, identity string) error {
	size, after := 0, ""
	for {
		page, err := a.ask(ctx, s, identity, after)
		if err != nil {
			return err
		}
		for i := range page.Items {
			size += len(page.Items[i].Content)
		}
		a.known = max(a.known, page.Generation)
		a.replicas, a.withheld = append(a.replicas, page.Items...), a.withheld+page.Withheld
		a.Objects = len(a.replicas) + a.withheld
		if page.Next == "" {
			return nil
		}
		if page.Next <= after || len(a.replicas) > maxReplicas || size > maxReplicaBytes {
			return fmt.Errorf("agent %s sends too much, or the same again", a.Name)
		}
		after = page.Next
	}
}

// otherSessions returns the agents that have no session with the identity of the plan.
func (r *rebuildPlan) otherSessions(ctx context.Context) (names []string, err error) {
	var again rebuildPlan
	for _, a := range r.Agents {
		if a.State == agentRead {
			again.Agents = append(again.Agents, rebuildAgent{Name: a.Name, State: agentRead})
		}
	}
	err = r.hub.withSearch(ctx, r.flags.search, func(s *searchClient) error { return again.each(ctx, s, (*rebuildAgent).readState) })
	for _, a := range again.Agents {
		if a.session != r.Identity {
			names = append(names, a.Name)
		}
	}
	return names, err
}

// identify finds the identity of the lost hub. Agents must agree on it, because the hub has only one.
func (r *rebuildPlan) identify(wanted string) error {
	hubs := map[string][]string{}
	for _, a := range r.Agents {
		for identity := range a.hubs {
			hubs[identity] = append(hubs[identity], a.Name)
		}
	}
	switch {
	case wanted != "" && hubs[wanted] == nil:
		return fmt.Errorf("--identity %s: no agent has an object of this hub", wanted)
	case wanted != "":
		r.Identity = wanted
	case len(hubs) == 0:
		return errors.New("no managed agent that is connected has an object of a hub: there is nothing to restore")
	case len(hubs) > 1:
		var lines []string
		for _, identity := range slices.Sorted(maps.Keys(hubs)) {
			lines = append(lines, fmt.Sprintf("%s on %s", identity, shortList(hubs[identity], 8)))
		}
		return fmt.Errorf("agents have objects of several hubs: %s. Select the lost one with --identity", strings.Join(lines, "; "))
	default:
		r.Identity = slices.Collect(maps.Keys(hubs))[0]
	}
	return nil
}

// readHub reads the objects of the hub and what decides about those of each agent.
func (r *rebuildPlan) readHub(ctx context.Context) error {
	read := snapshot{env: &kind.Env{}}
	if err := read.read(ctx, r.hub, ""); err != nil {
		return err
	}
	r.existing = read.objects
	for i := range r.Agents {
		a := &r.Agents[i]
		if a.State != agentRead {
			continue
		}
		var err error
		if a.env, err = r.hub.hubEnv(ctx, a.agent); err != nil {
			return err
		}
		a.env.PrincipalUID = r.Identity
	}
	return r.checkEmpty()
}

// checkEmpty returns an error if the hub has Applications that were not restored. Those that deploy to the hub itself may
// belong to the installation of Argo CD.
func (r *rebuildPlan) checkEmpty() error {
	var others []string
	for _, o := range r.existing[kind.Applications] {
		restored := kind.IsRestored(o, &kind.Env{Side: kind.Hub, PrincipalUID: r.Identity})
		if !restored && o.Annotation(kind.AgentNameAnnotation) == "" && !kind.OnHub(o) {
			others = append(others, o.Namespace()+"/"+o.Name())
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("the hub is not empty, so it is not a lost one: it has %s that it did not restore (%s). Delete them without their resources, or restore the hub from a backup", pluralize(len(others), "Application"), shortList(others, 8))
	}
	return nil
}

// restore decides about each object. It returns the objects of the hub after the rebuild.
func (r *rebuildPlan) restore() map[kind.Resource][]*kind.Object {
	after := map[kind.Resource][]*kind.Object{}
	for resource, list := range r.existing {
		after[resource] = slices.Clone(list)
	}
	for _, k := range kind.All() {
		parts, order := r.parts(k)
		for _, ref := range order {
			o := r.decide(k, ref, parts[ref])
			r.Objects = append(r.Objects, o)
			if o.object == nil {
				continue
			}
			list := after[k.Resource()]
			if i := slices.IndexFunc(list, func(has *kind.Object) bool { return has.Namespace() == ref.Namespace && has.Name() == ref.Name }); i >= 0 {
				list[i] = o.object
			} else {
				after[k.Resource()] = append(list, o.object)
			}
		}
	}
	return after
}

// parts returns the replicas of a kind by the object of the hub that they came from.
func (r *rebuildPlan) parts(k kind.Kind) (parts map[kind.Ref][]kind.Part, order []kind.Ref) {
	parts = map[kind.Ref][]kind.Part{}
	for i := range r.Agents {
		a := &r.Agents[i]
		for j := range a.replicas {
			replica := &a.replicas[j]
			if replica.Scope != k.Scope() {
				continue
			}
			ref, err := k.Target(replica.Key(), a.env)
			if err == nil && replica.Deleting {
				err = errors.New("it was being deleted when the hub was lost")
			}
			if err != nil {
				r.Objects = append(r.Objects, rebuildObject{Kind: k.Scope(), Namespace: replica.Namespace, Name: replica.Name, Action: rebuildSkip, Agents: []string{a.Name}, Detail: err.Error()})
				continue
			}
			r.warnAbout(a, replica, ref)
			if parts[ref] == nil {
				order = append(order, ref)
			}
			parts[ref] = append(parts[ref], partOf(a, replica))
		}
	}
	slices.SortFunc(order, func(a, b kind.Ref) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return parts, order
}

func partOf(a *rebuildAgent, replica *reconcile.Replica) kind.Part {
	written, _ := engine.ParseVersion(replica.Written)
	return kind.Part{Env: a.env, Key: replica.Key(), Content: replica.Content, Written: written}
}

// maxWarnings bounds the warnings of a plan.
const maxWarnings = 200

func (r *rebuildPlan) warnAbout(a *rebuildAgent, replica *reconcile.Replica, ref kind.Ref) {
	add := func(format string, args ...any) {
		if len(r.Warnings) < maxWarnings {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s %s/%s of agent %s ", replica.Scope, ref.Namespace, ref.Name, a.Name)+fmt.Sprintf(format, args...))
		}
	}
	if replica.Changed {
		add("was changed on the workload cluster after the hub wrote it. The change becomes the content of the hub")
	}
	if len(replica.Lost) > 0 {
		add("lacks fields that the workload cluster did not store: %s", shortList(replica.Lost, 8))
	}
	annotations, _ := rawjson.StringMap(rawjson.Get(replica.Content, "metadata", "annotations"))
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if kind.IsSubscription(key) {
			add("subscribes to notifications of the hub (%s): check the recipient", key)
		}
	}
}

// decide returns what happens with an object of the hub.
func (r *rebuildPlan) decide(k kind.Kind, ref kind.Ref, parts []kind.Part) rebuildObject {
	o := rebuildObject{Kind: k.Scope(), Namespace: ref.Namespace, Name: ref.Name, ref: ref}
	for _, part := range parts {
		o.Agents = append(o.Agents, part.Env.Agent.Name)
	}
	existing := finder(r.existing)(ref)
	if slices.Contains(r.flags.skip, o.name()) {
		o.Action, o.Detail = rebuildSkip, "--skip"
		return o
	}
	restored, err := kind.Restore(k, existing, parts)
	switch {
	case err != nil:
		o.Action, o.Detail = rebuildRefuse, err.Error()
		return o
	case existing == nil:
		o.Action = rebuildCreate
	case restored == existing:
		o.Action = rebuildExists
	default:
		o.Action = rebuildClaim
	}
	o.object = restored
	for i := range parts {
		item, ok := k.Publish(restored, parts[i].Env)
		if k.Scope() == kind.AppProjectScope && ok && !parts[i].Written.IsZero() && engine.VersionOf(item.Content) != parts[i].Written {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s of agent %s permitted more on the lost hub than the policy of the workload cluster allows: check it", o.name(), parts[i].Env.Agent.Name))
		}
	}
	return o
}

// compare finds what agents would change if the hub had these objects: the rebuilt hub publishes them, and each agent has its
// replicas. Nothing of one agent reaches another one unnoticed.
func (r *rebuildPlan) compare(after map[kind.Resource][]*kind.Object) {
	for i := range r.Agents {
		a := &r.Agents[i]
		if a.State != agentRead {
			continue
		}
		env := *a.env
		env.Find = finder(after)
		env.Pushing = func(string) []*kind.Object { return after[kind.Applications] }
		for _, k := range kind.All() {
			t := k.Traits()
			if t.Style != engine.Mirror || t.OwnerIn(kind.Managed) != kind.Hub {
				continue
			}
			owner := &snapshot{env: &env, objects: after}
			if len(a.kinds) > 0 && !slices.Contains(a.kinds, t.Name) {
				owner.objects = nil // the agent deletes its replicas
			}
			held := map[engine.Key]kind.ReplicaItem{}
			for j := range a.replicas {
				if replica := &a.replicas[j]; replica.Scope == k.Scope() && !replica.Deleting {
					item := kind.ReplicaItem{Key: replica.Key(), Content: replica.Content, Ownership: kind.Ownership{Owned: true}}
					if part := partOf(a, replica); !part.Written.IsZero() {
						item.Ownership.Alias.Alias = engine.Alias{Written: part.Written, Stored: engine.VersionOf(part.Content)}
					}
					held[replica.Key()] = item
				}
			}
			found, equal := compareItems(k, owner, held, kind.Spoke)
			r.InSync += equal
			for _, d := range found {
				skipped := slices.Contains(r.flags.skip, d.Kind+"/"+d.Name) && !(r.flags.confirm && d.State == "extra")
				switch {
				case d.State == "frozen":
					r.Warnings = append(r.Warnings, fmt.Sprintf("application %s of agent %s is frozen: its AppProject or destination does not permit it. The workload cluster keeps it as it is", d.Name, a.Name))
				case !skipped:
					r.Differences = append(r.Differences, agentDivergence{a.Name, d})
				}
			}
		}
	}
}
