package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// RegistryConfig is what a Registry needs.
type RegistryConfig struct {
	Client       *kube.Client
	Namespace    string // of Argo CD
	Mapping      kind.Mapping
	Namespaces   []string                                     // in which Applications are read; if empty, all
	Limits       kind.Limits                                  // of agents without limits of their own
	ProxyAddress string                                       // host:port of the resource proxy
	Post         func(context.Context, reconcile.Input) error // receives registrations and confirmations
	// Revoked reports whether a certificate is revoked now, and whether an agent with this name was deleted.
	Revoked func(ctx context.Context, agent, fingerprint string) (revoked, deleted bool, err error)
	Log     *slog.Logger
}

// Registry knows all Agents and their cluster Secrets. It decides which registration is active for each agent. The cost of
// a change does not depend on the number of agents.
type Registry struct {
	cfg       RegistryConfig
	ready     chan struct{}
	listeners []func(agent string)

	notifyMu sync.Mutex // held while a change is posted, so that changes are posted in order
	mu       sync.Mutex
	// Objects of the cluster.
	objects    map[string]agentRecord     // by agent
	secrets    map[string]clusterSecret   // by name
	secretsOf  map[string]map[string]bool // agent → names of its Secrets
	listed     map[kind.Resource]bool
	unreadable map[kind.Resource]string // resource → error
	// Derived from them.
	agents             map[string]Registration // active registrations
	invalid            map[string]string       // agent → why its Agent is not active
	namespaceOwner     map[string]string       // namespace → agent
	releasedNamespaces []string                // namespaces that were released in this change
}

// NewRegistry returns an empty Registry. Its watches fill it.
func NewRegistry(cfg RegistryConfig) *Registry {
	return &Registry{cfg: cfg, ready: make(chan struct{}),
		objects: map[string]agentRecord{}, secrets: map[string]clusterSecret{}, secretsOf: map[string]map[string]bool{},
		listed: map[kind.Resource]bool{}, unreadable: map[kind.Resource]string{},
		agents: map[string]Registration{}, invalid: map[string]string{}, namespaceOwner: map[string]string{}}
}

// OnChange calls f after each change of an Agent or its cluster Secret. f must not block. OnChange must be called before
// the watches run.
func (r *Registry) OnChange(f func(agent string)) { r.listeners = append(r.listeners, f) }

// Ready is closed when all Agents and cluster Secrets were read once.
func (r *Registry) Ready() <-chan struct{} { return r.ready }

// runWhenReady waits for the registry and then runs functions until ctx ends. Before, existing objects would look missing.
func (r *Registry) runWhenReady(ctx context.Context, runs ...func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.ready:
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		all.Go(func() error { return run(ctx) })
	}
	return all.Wait()
}

// SecretWatch selects the cluster Secrets of agents.
func (r *Registry) SecretWatch() kube.Watch {
	return kube.Watch{Resource: kind.Secrets, Namespace: r.cfg.Namespace, Selector: AgentLabel}
}

// Watches returns the watches whose sink is Apply.
func (r *Registry) Watches() []kube.Watch {
	return []kube.Watch{{Resource: AgentResource, Namespace: r.cfg.Namespace}, r.SecretWatch()}
}

// Apply applies a change of the watches.
func (r *Registry) Apply(ctx context.Context, in reconcile.Input) error {
	switch in := in.(type) {
	case reconcile.List:
		return r.applyList(ctx, in)
	case reconcile.Observed:
		if in.Resource == AgentResource {
			return r.update(ctx, in.Object)
		}
		return r.updateSecret(ctx, in.Object)
	case reconcile.Deleted:
		return r.applyChange(ctx, func() []string {
			if in.Ref.Resource == AgentResource {
				return r.drop(in.Ref.Name, in.Revision)
			}
			return r.dropSecret(in.Ref.Name, in.Revision)
		})
	case reconcile.Unreadable:
		r.mu.Lock()
		r.unreadable[in.Resource] = in.Reason
		r.mu.Unlock()
	}
	return nil
}

func (r *Registry) applyList(ctx context.Context, in reconcile.List) error {
	present := sets.New[string]()
	for _, o := range in.Objects {
		present.Insert(o.Name())
	}
	err := r.applyChange(ctx, func() (touched []string) {
		if in.Resource == AgentResource {
			touched = r.putAll(in.Objects)
			for name := range sets.KeySet(r.objects).Difference(present) {
				touched = append(touched, r.drop(name, in.Revision)...)
			}
		} else {
			for _, o := range in.Objects {
				touched = append(touched, r.putSecret(o)...)
			}
			for name := range sets.KeySet(r.secrets).Difference(present) {
				touched = append(touched, r.dropSecret(name, in.Revision)...)
			}
		}
		delete(r.unreadable, in.Resource)
		return touched
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.complete()
	r.listed[in.Resource] = true
	if first && r.complete() {
		close(r.ready)
	}
	return err
}

// complete reports whether both resources were listed. The caller must hold mu.
func (r *Registry) complete() bool { return r.listed[AgentResource] && r.listed[kind.Secrets] }

func (r *Registry) putAll(objects []*kind.Object) (touched []string) {
	records := make([]agentRecord, 0, len(objects))
	for _, o := range objects {
		if rec, ok := r.read(o); ok {
			records = append(records, rec)
		}
	}
	slices.SortFunc(records, compareAgents)
	for _, rec := range records {
		touched = append(touched, r.put(rec)...)
	}
	return touched
}

func (r *Registry) read(o *kind.Object) (agentRecord, bool) {
	rec, err := readAgent(o)
	if err != nil {
		r.cfg.Log.Warn("Failed to read Agent, keeping its last registration", "agent", o.Name(), "error", err)
	}
	return rec, err == nil
}

// compareAgents orders Agents that may conflict, older first. An Agent that was reported as invalid comes last, so that all
// principal replicas decide the same after a restart.
func compareAgents(a, b agentRecord) int {
	switch invalid := a.wasInvalid(); {
	case invalid == b.wasInvalid():
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	case invalid:
		return 1
	}
	return -1
}

// update applies an Agent, unless a newer version is known.
func (r *Registry) update(ctx context.Context, o *kind.Object) error {
	rec, ok := r.read(o)
	if !ok {
		return nil
	}
	return r.applyChange(ctx, func() []string { return r.put(rec) })
}

func (r *Registry) put(rec agentRecord) []string {
	if before, known := r.objects[rec.Name]; known && before.revision >= rec.revision {
		return nil
	}
	r.objects[rec.Name] = rec
	return []string{rec.Name}
}

// drop removes an Agent, unless a newer version is known.
func (r *Registry) drop(name string, revision uint64) []string {
	if rec, known := r.objects[name]; !known || rec.revision > revision {
		return nil
	}
	delete(r.objects, name)
	return []string{name}
}

// applyChange changes the objects, posts the resulting registrations of the affected agents, and calls the listeners.
func (r *Registry) applyChange(ctx context.Context, do func() (touched []string)) error {
	r.notifyMu.Lock()
	defer r.notifyMu.Unlock()
	r.mu.Lock()
	var inputs []reconcile.Input
	touched := do()
	for i := 0; i < len(touched); i++ { // touched grows
		inputs = append(inputs, r.resolve(touched[i])...)
		touched = append(touched, r.nextNamespaceOwners()...)
	}
	r.mu.Unlock()
	for _, in := range inputs {
		if err := r.cfg.Post(ctx, in); err != nil {
			return err
		}
	}
	for _, agent := range touched {
		for _, f := range r.listeners {
			f(agent)
		}
	}
	return nil
}

// Names returns the agents with an active registration.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.agents))
}

func (r *Registry) objectNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.objects))
}

// Get returns the active registration of an agent.
func (r *Registry) Get(agent string) (Registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.agents[agent]
	return reg, ok
}

// Agent returns an agent's Agent as last seen.
func (r *Registry) Agent(name string) (v1alpha1.Agent, bool) {
	rec, known, _, _ := r.object(name)
	return rec.Agent, known
}

// object returns an agent's Agent and cluster Secret as last seen.
func (r *Registry) object(agent string) (rec agentRecord, known bool, secret clusterSecret, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, known = r.objects[agent]
	secret, has = r.preferredSecret(agent)
	return rec, known, secret, has
}

// InvalidReason returns why an agent's Agent is not active.
func (r *Registry) InvalidReason(agent string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.invalid[agent]
}

// DenyReason returns why an agent is refused although it can authenticate. It is empty if the agent is accepted.
func (r *Registry) DenyReason(agent string) string {
	rec, known := r.Agent(agent)
	switch {
	case !known:
		return ""
	case rec.DeletionTimestamp != nil:
		return "this agent was deleted on the hub"
	case retired(rec):
		return "this agent is retired on the hub: its cluster is permanently gone"
	case rec.Spec.Suspended:
		return "this agent is suspended on the hub (spec.suspended of its Agent)"
	case rec.Annotations[v1alpha1.ReusedAnnotation] != "":
		return reusedDenial(agent)
	}
	return ""
}

// HasAgent reports whether an agent has an Agent.
func (r *Registry) HasAgent(agent string) bool {
	_, known := r.Agent(agent)
	return known
}

func (r *Registry) retired(agent string) bool {
	rec, known := r.Agent(agent)
	return known && retired(rec)
}

// Shared reports whether spec.shared of an agent's Agent is set.
func (r *Registry) Shared(agent string) bool {
	reg, ok := r.Get(agent)
	return ok && reg.shared
}

// Incarnation distinguishes the Agent of an agent from earlier ones with the same name.
func (r *Registry) Incarnation(agent string) string {
	rec, _ := r.Agent(agent)
	return Incarnation(rec)
}

// Incarnation distinguishes an Agent from earlier ones with the same name.
func Incarnation(a v1alpha1.Agent) string {
	uid := string(a.UID)
	return uid[:min(len(uid), 8)]
}

// Check returns an error if Agents or cluster Secrets cannot be read.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var problems []string
	for _, of := range []kind.Resource{AgentResource, kind.Secrets} {
		switch {
		case r.unreadable[of] != "":
			problems = append(problems, "cannot read "+of.Plural+": "+r.unreadable[of])
		case !r.listed[of]:
			problems = append(problems, of.Plural+" have not been read yet")
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
