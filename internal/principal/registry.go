package principal

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/engine"
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
	client    *kube.Client
	namespace string // of Argo CD
	mapping   kind.Mapping
	proxy     string // host:port of the resource proxy
	post      func(context.Context, node.Input) error
	log       *slog.Logger

	mu     sync.Mutex
	agents map[string]registration
	ready  chan struct{} // closed when the Secrets were read once
}

// registration is what a cluster Secret says of an agent.
type registration struct {
	node.Register
	secret  string
	confirm string
}

// watch tells which Secrets are registrations.
func (r *registry) watch() kube.Watch {
	return kube.Watch{Resource: kind.Secrets, Namespace: r.namespace, Selector: agentLabel}
}

// take is the sink of the Secrets' watcher.
func (r *registry) take(ctx context.Context, in node.Input) error {
	switch in := in.(type) {
	case node.List:
		present := map[string]bool{}
		for _, o := range in.Objects {
			present[o.Label(agentLabel)] = true
			if err := r.seen(ctx, o); err != nil {
				return err
			}
		}
		for _, agent := range r.names() {
			if !present[agent] {
				if err := r.lost(ctx, agent, ""); err != nil {
					return err
				}
			}
		}
		r.mu.Lock()
		select {
		case <-r.ready:
		default:
			close(r.ready)
		}
		r.mu.Unlock()
	case node.Seen:
		return r.seen(ctx, in.Object)
	case node.Lost:
		return r.lost(ctx, "", in.Ref.Name)
	}
	return nil
}

func (r *registry) seen(ctx context.Context, o *kind.Object) error {
	reg, err := r.read(o)
	if err != nil {
		r.log.WarnContext(ctx, "this cluster Secret is no registration", "secret", o.Name(), "error", err)
		return nil
	}
	if reg.Agent.Mode == "" {
		return nil // not claimed yet; the agent's first connection does
	}
	r.mu.Lock()
	before := r.agents[reg.Agent.Name]
	r.agents[reg.Agent.Name] = reg
	r.mu.Unlock()
	if err := r.post(ctx, reg.Register); err != nil {
		return err
	}
	if reg.confirm != "" && reg.confirm != before.confirm {
		r.log.InfoContext(ctx, "confirmed", "agent", reg.Agent.Name, "id", reg.confirm)
		return r.post(ctx, node.Confirm{Agent: reg.Agent.Name, ID: reg.confirm})
	}
	return nil
}

func (r *registry) lost(ctx context.Context, agent, secret string) error {
	r.mu.Lock()
	for name, reg := range r.agents {
		if name == agent || secret != "" && reg.secret == secret {
			agent = name
		}
	}
	_, known := r.agents[agent]
	delete(r.agents, agent)
	r.mu.Unlock()
	if !known {
		return nil
	}
	return r.post(ctx, node.Unregister{Agent: agent})
}

func (r *registry) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name := range maps.Keys(r.agents) {
		out = append(out, name)
	}
	return out
}

func (r *registry) get(agent string) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.agents[agent]
	return reg, ok
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
	reg := registration{secret: o.Name(), confirm: o.Annotation(confirmAnnotation)}
	reg.Agent = kind.Agent{Name: name, Mode: kind.Mode(o.Annotation(modeAnnotation)), Mapping: r.mapping,
		HubNamespace: o.Annotation(namespaceAnnotation), Server: string(server)}
	if reg.Agent.HubNamespace == "" {
		reg.Agent.HubNamespace = name
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

// claim records the first claim of an agent that is not registered yet.
func (r *registry) claim(ctx context.Context, agent string, hello engine.Hello) error {
	mode := kind.Mode(hello.Mode)
	if mode != kind.Managed && mode != kind.Autonomous {
		return fmt.Errorf("mode %.40q is unknown", hello.Mode)
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: r.namespace, Name: "cluster-" + agent}
	annotations := map[string]string{
		"managed-by": "argocd-agent", "argocd.argoproj.io/skip-reconcile": "true",
		modeAnnotation: string(mode), clusterAnnotation: hello.ClusterUID,
	}
	labels := map[string]string{agentLabel: agent, "argocd.argoproj.io/secret-type": "cluster"}
	existing, err := r.client.Get(ctx, ref)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	var o *kind.Object
	if existing != nil {
		if existing.Label(agentLabel) != agent {
			return fmt.Errorf("secret %s exists and is not labelled %s=%s", ref.Name, agentLabel, agent)
		}
		if existing.Annotation(modeAnnotation) != "" {
			return r.seen(ctx, existing) // claimed meanwhile; what is registered decides
		}
		o, err = r.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{"annotations": annotations, "labels": labels}})
	} else {
		labels[selfRegisteredLabel] = "true"
		o, err = r.client.Create(ctx, ref, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"name": ref.Name, "namespace": ref.Namespace, "labels": labels, "annotations": annotations},
			"stringData": map[string]string{"name": agent, "server": "https://" + r.proxy + "?agentName=" + agent, "config": "{}"},
		})
	}
	if err != nil {
		return fmt.Errorf("record the first claim in Secret %s: %w", ref.Name, err)
	}
	r.log.InfoContext(ctx, "registered an agent by its first claim", "agent", agent, "mode", mode, "cluster", hello.ClusterUID)
	return r.seen(ctx, o)
}

// remember records how far an agent's store has been seen, so that a restart of
// the hub does not believe one that went back.
func (r *registry) remember(ctx context.Context, agent string, store engine.Store) error {
	reg, ok := r.get(agent)
	if !ok || store.UID == "" || reg.KnownStore == store {
		return nil
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: r.namespace, Name: reg.secret}
	_, err := r.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{"annotations": map[string]string{storeAnnotation: formatStore(store)}}})
	return err
}

func formatStore(s engine.Store) string { return s.UID + "/" + strconv.FormatUint(s.Revision, 10) }

func parseStore(s string) engine.Store {
	uid, rev, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(rev, 10, 64)
	if !ok || err != nil {
		return engine.Store{}
	}
	return engine.Store{UID: uid, Revision: n}
}
