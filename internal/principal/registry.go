package principal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// Annotations of a cluster Secret that are an agent's registration.
const (
	modeAnnotation      = kind.Prefix + "mode"
	namespaceAnnotation = kind.Prefix + "hub-namespace"
	clusterAnnotation   = kind.Prefix + "cluster-uid"
	storeAnnotation     = kind.Prefix + "seen-store"
	confirmAnnotation   = kind.Prefix + "confirm"
	agentLabel          = kind.Prefix + "agent-name"
	selfRegisteredLabel = kind.Prefix + "self-registered-cluster"
)

// registry knows the agents: what is registered for each, in its cluster
// Secret. What the hub has registered decides, never what the agent claims.
type registry struct {
	ctx       context.Context // of Run; ends with it
	client    *kube.Client
	namespace string // of Argo CD
	mapping   kind.Mapping
	proxy     string // host:port of the resource proxy
	post      func(context.Context, node.Input) error
	log       *slog.Logger
	ready     chan struct{} // closed when the Secrets were read once

	order   sync.Mutex // held while the node is told, so that it hears changes in their order
	mu      sync.Mutex
	secrets map[string]registration // what each Secret says
	agents  map[string]registration // what is in force
	refused map[string]string       // agent → why what its Secret says is not
	blind   string                  // why Secrets can not be read; empty: they can
}

// registration is what a cluster Secret says of an agent.
type registration struct {
	node.Register
	secret   string
	revision uint64
	confirm  string
}

// watch tells which Secrets are registrations.
func (r *registry) watch() kube.Watch {
	return kube.Watch{Resource: kind.Secrets, Namespace: r.namespace, Selector: agentLabel}
}

// take is the sink of the Secrets' watcher.
func (r *registry) take(_ context.Context, in node.Input) error {
	switch in := in.(type) {
	case node.List:
		if err := r.listed(in); err != nil {
			return err
		}
		select {
		case <-r.ready:
		default:
			close(r.ready) // by the one goroutine that lists
		}
	case node.Seen:
		if err := r.seen(in.Object); err != nil {
			return r.complain(in.Object, err)
		}
	case node.Lost:
		return r.change(func() []string { return r.drop(in.Ref.Name, in.Revision) })
	case node.Blind:
		r.mu.Lock()
		r.blind = in.Reason
		r.mu.Unlock()
	}
	return nil
}

func (r *registry) listed(in node.List) error {
	present := map[string]bool{}
	for _, o := range in.Objects {
		present[o.Name()] = true
		if err := r.seen(o); err != nil {
			if err := r.complain(o, err); err != nil {
				return err
			}
		}
	}
	return r.change(func() (touched []string) {
		r.blind = ""
		for name := range r.secrets {
			if !present[name] {
				touched = append(touched, r.drop(name, in.Revision)...)
			}
		}
		return touched
	})
}

// wrongError says that a Secret makes no sense as a registration.
type wrongError struct{ error }

// complain logs what is wrong with a Secret; what it said before stays in force.
// Any other error is passed on.
func (r *registry) complain(o *kind.Object, err error) error {
	if wrong, ok := errors.AsType[wrongError](err); ok {
		r.log.Warn("this cluster Secret is no registration", "secret", o.Name(), "error", wrong.error)
		return nil
	}
	return err
}

// seen takes a Secret as it is now, unless something newer is known.
func (r *registry) seen(o *kind.Object) error {
	reg, err := r.read(o)
	if err != nil {
		return wrongError{err}
	}
	return r.change(func() (touched []string) {
		before, known := r.secrets[reg.secret]
		if known && before.revision >= reg.revision {
			return nil
		}
		if known && before.Agent.Name != reg.Agent.Name {
			touched = append(touched, before.Agent.Name)
		}
		r.secrets[reg.secret] = reg
		return append(touched, reg.Agent.Name)
	})
}

// drop forgets a Secret, unless there is a newer one of that name.
func (r *registry) drop(secret string, revision uint64) []string {
	reg, known := r.secrets[secret]
	if !known || reg.revision > revision {
		return nil
	}
	delete(r.secrets, secret)
	return []string{reg.Agent.Name}
}

// change changes what Secrets say, and tells the node what follows for the
// agents that are touched by it.
func (r *registry) change(do func() (touched []string)) error {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	var tell []node.Input
	touched := do()
	for _, agent := range touched {
		tell = append(tell, r.settle(agent)...)
	}
	if len(touched) > 0 { // what stood in another's way may be gone
		for _, agent := range slices.Sorted(maps.Keys(r.refused)) {
			tell = append(tell, r.settle(agent)...)
		}
	}
	r.mu.Unlock()
	for _, in := range tell {
		if err := r.post(r.ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.agents))
}

func (r *registry) get(agent string) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.agents[agent]
	return reg, ok
}

// refusal tells why what is registered for an agent is not in force.
func (r *registry) refusal(agent string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused[agent]
}

// read reads a registration off a cluster Secret.
func (r *registry) read(o *kind.Object) (registration, error) {
	name := o.Label(agentLabel)
	if err := kind.ValidateAgentName(name); err != nil {
		return registration{}, err
	}
	server, err := base64.StdEncoding.DecodeString(raw.Text(o.Get("data"), "server"))
	if err != nil {
		return registration{}, fmt.Errorf("server: %w", err)
	}
	reg := registration{secret: o.Name(), revision: kube.Number(o.ResourceVersion()), confirm: o.Annotation(confirmAnnotation)}
	reg.Agent = kind.Agent{Name: name, Mode: kind.Mode(o.Annotation(modeAnnotation)), Mapping: r.mapping,
		HubNamespace: o.Annotation(namespaceAnnotation), Server: string(server)}
	if reg.Agent.HubNamespace == "" {
		reg.Agent.HubNamespace = name
	} else if wrong := validation.IsDNS1123Label(reg.Agent.HubNamespace); len(wrong) > 0 {
		return registration{}, fmt.Errorf("annotation %s is %.80q, which can not be a namespace", namespaceAnnotation, reg.Agent.HubNamespace)
	}
	switch reg.Agent.Mode {
	case "", kind.Managed, kind.Autonomous:
	default:
		return registration{}, fmt.Errorf("annotation %s is %q; it must be managed or autonomous", modeAnnotation, reg.Agent.Mode)
	}
	reg.KnownCluster = o.Annotation(clusterAnnotation)
	reg.KnownStore = parseStore(o.Annotation(storeAnnotation))
	return reg, nil
}
