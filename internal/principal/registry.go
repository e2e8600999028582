package principal

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// registry knows the agents: what is declared for each in its Agent object, and
// the cluster Secret that is derived from it. What the hub has registered
// decides, never what the agent claims. Each change costs the same however many
// agents there are.
type registry struct {
	ctx          context.Context // of Run; ends with it
	client       *kube.Client
	namespace    string // of Argo CD
	mapping      kind.Mapping
	proxyAddress string // host:port of the resource proxy
	post         func(context.Context, reconcile.Input) error
	closeConns   func(agent, why string) // ends its connections
	changed      func(agent string)      // something about it has changed
	revoked      func(ctx context.Context, fingerprint string) (bool, error)
	log          *slog.Logger
	ready        chan struct{} // closed when Agents and Secrets were read once

	order sync.Mutex // held while the node is told, so that it hears changes in their order
	mu    sync.Mutex
	// What the cluster has.
	objects    map[string]agentRecord     // Agents
	secrets    map[string]clusterSecret   // by their names
	secretsOf  map[string]map[string]bool // agent → names of its Secrets
	listed     map[kind.Resource]bool
	unreadable map[kind.Resource]string // why something cannot be read
	// What follows from it.
	agents             map[string]registration    // what is in force
	invalid            map[string]string          // agent → why what is declared is not
	namespaceOwner     map[string]string          // namespace → agent whose own it is
	namespaceWaiters   map[string]map[string]bool // namespace → agents that would have it
	waitsFor           map[string]string          // and the reverse
	releasedNamespaces []string                   // namespaces that were left in this change
}

// prepare makes a registry of which the parts above are given.
func (r *registry) prepare() *registry {
	r.objects, r.secrets, r.secretsOf = map[string]agentRecord{}, map[string]clusterSecret{}, map[string]map[string]bool{}
	r.listed, r.unreadable = map[kind.Resource]bool{}, map[kind.Resource]string{}
	r.agents, r.invalid = map[string]registration{}, map[string]string{}
	r.namespaceOwner, r.namespaceWaiters, r.waitsFor = map[string]string{}, map[string]map[string]bool{}, map[string]string{}
	r.ready = make(chan struct{})
	return r
}

// secretWatch tells which Secrets are agents'.
func (r *registry) secretWatch() kube.Watch {
	return kube.Watch{Resource: kind.Secrets, Namespace: r.namespace, Selector: agentLabel}
}

// watches lists what the registry reads.
func (r *registry) watches() []kube.Watch {
	return []kube.Watch{{Resource: agentResource, Namespace: r.namespace}, r.secretWatch()}
}

// apply is the sink of both watchers.
func (r *registry) apply(_ context.Context, in reconcile.Input) error {
	switch in := in.(type) {
	case reconcile.List:
		return r.applyList(in)
	case reconcile.Observed:
		if in.Resource == agentResource {
			return r.update(in.Object)
		}
		return r.updateSecret(in.Object)
	case reconcile.Deleted:
		return r.applyChange(func() []string {
			if in.Ref.Resource == agentResource {
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

// applyList takes a whole list. Of two Agents that are at odds, the one that was
// not refused, or else the older, is there first.
func (r *registry) applyList(in reconcile.List) error {
	present := map[string]bool{}
	for _, o := range in.Objects {
		present[o.Name()] = true
	}
	err := r.applyChange(func() (touched []string) {
		if in.Resource == agentResource {
			touched = r.putAll(in.Objects)
			for name := range r.objects {
				if !present[name] {
					touched = append(touched, r.drop(name, in.Revision)...)
				}
			}
		} else {
			for _, o := range in.Objects {
				touched = append(touched, r.putSecret(o)...)
			}
			for name := range r.secrets {
				if !present[name] {
					touched = append(touched, r.dropSecret(name, in.Revision)...)
				}
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

// complete reports whether everything was read once. Under mu.
func (r *registry) complete() bool { return r.listed[agentResource] && r.listed[kind.Secrets] }

func (r *registry) putAll(objects []*kind.Object) (touched []string) {
	records := make([]agentRecord, 0, len(objects))
	for _, o := range objects {
		rec, err := readAgent(o)
		if err != nil {
			r.log.Warn("this Agent cannot be read; what it said before stays in force", "agent", o.Name(), "error", err)
			continue
		}
		records = append(records, rec)
	}
	slices.SortFunc(records, compareAgents)
	for _, rec := range records {
		touched = append(touched, r.put(rec)...)
	}
	return touched
}

// compareAgents orders Agents that may be at odds. One that was refused comes last:
// who starts again comes to the same as those that run, and whoever was given an
// agent's namespace later does not get it then.
func compareAgents(a, b agentRecord) int {
	switch refused := a.wasRefused(); {
	case refused == b.wasRefused():
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	case refused:
		return 1
	}
	return -1
}

// update takes an Agent as it is now, unless something newer is known.
func (r *registry) update(o *kind.Object) error {
	rec, err := readAgent(o)
	if err != nil {
		r.log.Warn("this Agent cannot be read; what it said before stays in force", "agent", o.Name(), "error", err)
		return nil
	}
	return r.applyChange(func() []string { return r.put(rec) })
}

func (r *registry) put(rec agentRecord) []string {
	if before, known := r.objects[rec.Name]; known && before.revision >= rec.revision {
		return nil
	}
	r.objects[rec.Name] = rec
	return []string{rec.Name}
}

// drop forgets an Agent, unless there is a newer one of that name.
func (r *registry) drop(name string, revision uint64) []string {
	if rec, known := r.objects[name]; !known || rec.revision > revision {
		return nil
	}
	delete(r.objects, name)
	return []string{name}
}

// applyChange changes what is known of the cluster, and tells the node and everybody
// else what follows for the agents that are touched by it.
func (r *registry) applyChange(do func() (touched []string)) error {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	var tell []reconcile.Input
	barred := map[string]string{}
	touched := do()
	for i := 0; i < len(touched); i++ { // it may grow
		agent := touched[i]
		tell = append(tell, r.resolve(agent)...)
		if why := r.denyReasonLocked(agent); why != "" {
			barred[agent] = why
		}
		touched = append(touched, r.nextNamespaceOwners()...)
	}
	r.mu.Unlock()
	for _, in := range tell {
		if err := r.post(r.ctx, in); err != nil {
			return err
		}
	}
	for _, agent := range touched {
		if why := barred[agent]; why != "" {
			r.closeConns(agent, why)
		}
		r.changed(agent)
	}
	return nil
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.agents))
}

// objectNames lists all Agents.
func (r *registry) objectNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.objects))
}

// get returns what is in force for an agent.
func (r *registry) get(agent string) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.agents[agent]
	return reg, ok
}

// object returns an agent's Agent as it was last seen, and its Secret.
func (r *registry) object(agent string) (rec agentRecord, known bool, secret clusterSecret, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, known = r.objects[agent]
	secret, has = r.preferredSecret(agent)
	return rec, known, secret, has
}

// invalidReason tells why what is declared for an agent is not in force.
func (r *registry) invalidReason(agent string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.invalid[agent]
}

// denyReason tells why an agent is not let in, whatever it can show; empty: it is.
func (r *registry) denyReason(agent string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denyReasonLocked(agent)
}

// hasAgent reports whether an agent has been declared, or has come before.
func (r *registry) hasAgent(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.objects[agent]
	return known
}

// retired reports whether an agent's cluster is said to be gone for good.
func (r *registry) retired(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, known := r.objects[agent]
	return known && rec.retired()
}

// shared reports whether an agent may use the hub's repo-server and Redis.
func (r *registry) shared(agent string) bool {
	reg, ok := r.get(agent)
	return ok && reg.shared
}

// incarnation tells an Agent from others that had its name.
func (r *registry) incarnation(agent string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return incarnation(r.objects[agent])
}

func incarnation(rec agentRecord) string {
	uid := string(rec.UID)
	return uid[:min(len(uid), 8)] // of what is random
}

func (r *registry) readable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var why []string
	for _, of := range []kind.Resource{agentResource, kind.Secrets} {
		switch {
		case r.unreadable[of] != "":
			why = append(why, "cannot read "+of.Plural+": "+r.unreadable[of])
		case !r.listed[of]:
			why = append(why, of.Plural+" have not been read yet")
		}
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, "; "))
	}
	return nil
}
