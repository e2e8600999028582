package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// process is what this process runs.
type process struct {
	hub       hub
	lease     *hublease.Lease // nil if there is none
	principal *principal      // nil if the state of the hub forbids to serve agents
}

// hub is the cluster of a principal and its state among the hubs of its group.
type hub struct {
	clusterUID string
	state      hubstate.State
	invalid    error // why the state is not known
}

// hubOf reads the state from its ConfigMap, which may be nil.
func hubOf(o *kind.Object, clusterUID string) hub {
	h := hub{clusterUID: clusterUID}
	h.state, h.invalid = hubstate.Of(o, clusterUID)
	return h
}

// refusal returns why this hub serves no agents, or nil. An unknown state could be that of a standby. lease is nil if the hubs
// have no Lease.
func (h hub) refusal(lease *hublease.Lease) error {
	switch {
	case h.invalid != nil:
		return h.invalid
	case h.state.Role == hubstate.Standby && lease != nil && lease.Reason() != "":
		return fmt.Errorf("this hub is a standby: agents connect to the active hub. Lease of the hubs: %s", lease.Reason())
	case h.state.Role == hubstate.Standby:
		return errors.New("this hub is a standby: agents connect to the active hub")
	case lease != nil && !lease.Held():
		return fmt.Errorf("this hub does not hold the Lease of the hubs: %s", lease.Reason())
	}
	return nil
}

// usesHubLease reports whether the Lease of the hubs decides about this hub. An invalid state is not changed.
func (cfg Config) usesHubLease(h hub) bool { return cfg.HubLease.Cluster != nil && h.invalid == nil }

// lease returns the Lease of the hubs, or nil. An active hub has tried to get it. It returns an error if the process has to
// start again.
func (h hub) lease(ctx context.Context, cfg Config, client *kube.Client) (*hublease.Lease, error) {
	if !cfg.usesHubLease(h) {
		return nil, nil
	}
	lease, err := hublease.New(cfg.HubLease, client, cfg.Namespace, h.clusterUID, h.state, cfg.Log)
	if err != nil || h.state.Role == hubstate.Standby {
		return lease, err
	}
	return lease, lease.TryHold(ctx)
}

// waitForLease waits until the process has to start again, with another state or because this hub holds the Lease now.
func (h hub) waitForLease(ctx context.Context, lease *hublease.Lease) error {
	if h.state.Role == hubstate.Standby {
		return lease.Follow(ctx)
	}
	if err := lease.Hold(ctx); err != nil {
		return err
	}
	return errors.New("this hub holds the Lease of the hubs: start again")
}

// receives reports whether a standby receives the objects of the active hub.
func (h hub) receives(cfg Config) bool {
	return h.invalid == nil && h.state.Role == hubstate.Standby && len(cfg.ActiveHubs) > 0
}

// same reports whether a process need not start again. A standby updates its predecessor all the time.
func (h hub) same(other hub) bool {
	if h.invalid != nil || other.invalid != nil {
		return h.invalid != nil && other.invalid != nil && h.invalid.Error() == other.invalid.Error()
	}
	return hubstate.SameRole(h.state, other.state) && (h.state.Role == hubstate.Standby || h.state.Predecessor == other.state.Predecessor)
}

func (h hub) String() string {
	if h.invalid != nil {
		return h.invalid.Error()
	}
	return fmt.Sprintf("%s, generation %d, identity %s", h.state.Role, h.state.Generation, h.state.Identity)
}

func (h hub) log(log *slog.Logger) *slog.Logger {
	return log.With("cluster", h.clusterUID, "identity", h.state.Identity, "role", string(h.state.Role), "generation", h.state.Generation)
}

// sink returns a sink of ConfigMaps that calls restart if the state is another one. All parts of a principal use the state
// that they started with.
func (h hub) sink(restart func(error)) kube.Sink {
	return kube.ObjectSink(hubstate.ConfigMap, func(_ context.Context, o *kind.Object) {
		if is := hubOf(o, h.clusterUID); !h.same(is) {
			restart(fmt.Errorf("the state of the hub changed from (%s) to (%s): start again", h, is))
		}
	})
}

func (h hub) metric() observe.Metric {
	return observe.Metric{Name: metricPrefix + "_hub_generation", Help: "Generation of this hub among the hubs of its group, with its role.",
		Samples: []observe.Sample{{Labels: []string{"role", string(h.state.Role)}, Value: float64(h.state.Generation)}}}
}

// startIdle starts what a process without a principal runs. It writes nothing but the Lease of the hubs. It reads certificates,
// so that agents can connect and get the reason, and the state of the hub. running is the standby of this process, if there is
// one.
func startIdle(start func(name string, run func(context.Context) error), cfg Config, client *kube.Client, h hub, lease *hublease.Lease, running *atomic.Pointer[standby], restart func(error)) {
	for _, unused := range []net.Listener{cfg.Live.Resource, cfg.Live.Redis, cfg.Search.Listener} {
		if unused != nil {
			_ = unused.Close()
		}
	}
	runner := kube.NewRunner(client, kube.RunnerConfig{Parallel: 1, Jitter: cfg.Jitter, Log: cfg.Log,
		Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: cfg.Namespace, ClusterUID: h.clusterUID})})
	runner.Watch(kube.Watch{Resource: kind.ConfigMaps, Namespace: cfg.Namespace, Name: hubstate.ConfigMap}, h.sink(restart))
	runner.WatchSecrets(cfg.PKINamespace, cfg.Secrets)
	if lease != nil {
		start("hub lease", func(ctx context.Context) error { return h.waitForLease(ctx, lease) })
	}
	start("hub state", func(ctx context.Context) error { return runner.Run(ctx, kube.Handlers{}) })
	if cfg.MetricsListener != nil {
		start("metrics", func(ctx context.Context) error {
			return observe.Serve(ctx, cfg.MetricsListener, observe.Metrics(observe.MetricsConfig{Prefix: metricPrefix, Version: cfg.Version, Commit: cfg.Commit, Date: cfg.Date,
				Gather: func(ctx context.Context) ([]observe.Metric, error) {
					var of []observe.Metric
					var err error
					if s := running.Load(); s != nil {
						of, err = s.metrics(ctx)
					}
					return append(of, h.metric()), err
				}}))
		})
	}
}

// waitForHub waits until the API server responds. It returns the cluster and the state of the hub.
func waitForHub(ctx context.Context, c *kube.Client, namespace string, log *slog.Logger) (hub, error) {
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	var logged logonce.One
	for {
		h, err := readHub(ctx, c, namespace)
		if err == nil {
			return h, nil
		}
		if logged.Changed(err.Error()) {
			log.WarnContext(ctx, "Waiting for the API server", "error", err)
		}
		if !backoff.Sleep(ctx, pause.Next()) {
			return hub{}, context.Cause(ctx)
		}
	}
}

func readHub(ctx context.Context, c *kube.Client, namespace string) (hub, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	uid, err := c.ClusterUID(ctx)
	if err != nil {
		return hub{}, err
	}
	h := hub{clusterUID: uid}
	h.state, _, err = hubstate.Read(ctx, c, namespace, uid)
	if errors.As(err, new(*hubstate.InvalidError)) {
		h.invalid, err = err, nil
	}
	return h, err
}
