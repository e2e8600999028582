package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// elsewhereHub is a hub as seen by replica "here", which runs for as long as the test.
type elsewhereHub struct {
	t         *testing.T
	registry  *testRegistry
	replicas  *Replicas
	revision  int
	announced []reconcile.Elsewhere
}

func newElsewhereHub(t *testing.T) *elsewhereHub {
	t.Helper()
	h := &elsewhereHub{t: t, registry: newTestRegistry(t)}
	h.replicas = NewReplicas(nil, h.registry.Registry, "argocd", "here", "", slog.New(slog.DiscardHandler))
	return h
}

func (h *elsewhereHub) elsewhere() *Elsewhere {
	return NewElsewhere(h.registry.Registry, h.replicas, func(_ context.Context, in reconcile.Input) error {
		h.announced = append(h.announced, in.(reconcile.Elsewhere))
		return nil
	}, func(context.Context) error { return nil }, slog.New(slog.DiscardHandler))
}

// run starts the part under test. The returned function ends it.
func (h *elsewhereHub) run() func() {
	ctx, cancel := context.WithCancel(h.t.Context())
	e := h.elsewhere()
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	return func() { cancel(); <-done }
}

// connected has an agent connected to a replica.
func (h *elsewhereHub) connected(name, replica string) {
	h.t.Helper()
	h.revision++
	h.registry.see(agent(name, h.revision, "managed", func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Principal = replica != "", replica }))
}

// disconnected has an agent whose last session was with a replica.
func (h *elsewhereHub) disconnected(name, replica string) {
	h.t.Helper()
	h.revision++
	h.registry.see(agent(name, h.revision, "managed", func(a *v1alpha1.Agent) { a.Status.Principal = replica }))
}

// pass lets time go by, in which replicas renew their Leases.
func (h *elsewhereHub) pass(d time.Duration, alive ...string) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for _, name := range alive {
			h.revision++
			lease := parsed(h.t, map[string]any{"metadata": map[string]any{"name": "lease-" + name, "namespace": "argocd", "resourceVersion": fmt.Sprint(h.revision),
				"annotations": map[string]string{replicaAnnotation: name}}, "spec": kube.LeaseSpec(name, leaseDuration)})
			if err := h.replicas.Apply(h.t.Context(), reconcile.Observed{Resource: kube.Leases, Object: lease}); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	synctest.Wait()
}

func (h *elsewhereHub) expect(when string, want ...string) {
	h.t.Helper()
	var got []string
	if len(h.announced) > 0 {
		got = slices.Sorted(maps.Keys(h.announced[len(h.announced)-1].Agents))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("%s: %v are elsewhere, not %v", when, got, want)
	}
}

func TestElsewhere_FollowsSessionsOfLiveReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newElsewhereHub(t)
		defer h.run()()
		h.connected("here-1", "here")
		h.connected("there-1", "there")
		h.connected("there-2", "there")
		h.connected("dead-1", "dead")
		h.connected("nowhere", "")
		h.pass(elsewhereAfter-20*time.Second, "here", "there")
		h.expect("at first")
		h.connected("there-2", "here")
		h.pass(time.Minute, "here", "there")
		h.expect("after a while", "there-1")
		h.connected("there-1", "other") // which is alive, too
		h.pass(time.Minute, "here", "there", "other")
		h.expect("another replica has the session", "there-1")
		h.disconnected("there-1", "other")
		h.pass(time.Minute, "here", "there", "other")
		h.expect("the agent is disconnected", "there-1")
		h.pass(time.Minute, "here", "there") // the other one has crashed
		h.expect("its replica has crashed")
	})
}

// One replica takes over the agents of a lost replica that do not come back. The others need not have their
// Applications.
func TestElsewhere_LostReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newElsewhereHub(t)
		defer h.run()()
		h.connected("lost-1", "lost")
		h.connected("lost-2", "lost")
		h.pass(3*time.Minute, "first", "here", "lost")
		h.expect("before", "lost-1", "lost-2")
		h.connected("lost-1", "here")
		h.pass(time.Minute, "first", "here")
		h.expect("after", "lost-2")
	})
}

// With one replica, and during its rollout, nothing is said to the reconciler, so nothing is read again.
func TestElsewhere_RolloutOfOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newElsewhereHub(t)
		defer h.run()()
		for i := range 10 {
			h.connected(fmt.Sprint("agent-", i), "old")
		}
		h.pass(time.Minute, "old", "here")
		for i := range 10 {
			h.connected(fmt.Sprint("agent-", i), "here")
		}
		h.pass(10*time.Minute, "here")
		if len(h.announced) > 0 {
			t.Errorf("%d messages to the reconciler", len(h.announced))
		}
	})
}

// The reconciler does nothing else while it reduces Applications.
func TestElsewhere_FewAgentsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newElsewhereHub(t)
		for i := range maxElsewhere + 50 {
			h.connected(fmt.Sprint("agent-", i), "there")
		}
		defer h.run()()
		h.pass(elsewhereAfter+5*elsewhereInterval, "there")
		before := 0
		for _, in := range h.announced {
			if more := len(in.Agents) - before; more > maxElsewhere {
				t.Errorf("%d agents at once", more)
			}
			before = len(in.Agents)
		}
		if before != maxElsewhere+50 {
			t.Errorf("%d agents are elsewhere", before)
		}
	})
}

// A replica that starts next to several others does not keep what they have. Next to one other it does: this may be a rollout.
func TestElsewhere_Begin(t *testing.T) {
	for name, test := range map[string]struct {
		alive []string // replicas
		want  []string // agents that are elsewhere
	}{
		"the first replica":     {nil, nil},
		"a rollout of one":      {[]string{"there"}, nil},
		"next to two others":    {[]string{"early", "there"}, []string{"there-1"}},
		"Leases are not read":   {nil, nil},
		"others ended long ago": {[]string{"there"}, nil},
		"next to three others":  {[]string{"lost", "other", "there"}, []string{"lost-1", "there-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newElsewhereHub(t)
				for _, w := range h.registry.Watches() {
					if err := h.registry.Apply(t.Context(), reconcile.List{Resource: w.Resource}); err != nil {
						t.Fatal(err)
					}
				}
				h.connected("here-1", "here")
				h.connected("there-1", "there")
				h.connected("lost-1", "lost")
				h.connected("nowhere", "here")
				e := h.elsewhere()
				if name != "Leases are not read" {
					if err := h.replicas.Apply(t.Context(), reconcile.List{Resource: kube.Leases}); err != nil {
						t.Fatal(err)
					}
				}
				if name == "others ended long ago" {
					h.pass(time.Second, "early", "lost")
					time.Sleep(elsewhereAfter)
				}
				h.pass(time.Second, test.alive...)
				e.Begin(t.Context())
				h.expect("at the start", test.want...)
				if len(test.want) == 0 {
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- e.Run(ctx) }()
				h.pass(30*time.Second, test.alive...)
				h.expect("then", test.want...)
				h.connected("there-1", "here")
				h.pass(30*time.Second, test.alive...)
				h.expect("an agent comes here", test.want[:len(test.want)-1]...)
				cancel()
				<-done
			})
		})
	}
}
