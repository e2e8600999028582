package reconcile

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// fleet is a hub with many agents, each in a session and with a few Applications.
type fleet struct {
	*Reconciler
	t   testing.TB
	now engine.Time
	rev int
}

const (
	fleetApps = 4
	busy      = 50 // agents that have something to say, of however many there are
)

func newFleet(t testing.TB, agents int) *fleet {
	t.Helper()
	f := &fleet{t: t, now: 1_000_000, rev: 100,
		Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"})}
	for _, r := range Resources() {
		list := List{Resource: r, Revision: 100}
		if r == kind.AppProjects {
			list.Objects = append(list.Objects, f.openProject())
		}
		if r == kind.Applications {
			for i := range agents {
				for k := range fleetApps {
					list.Objects = append(list.Objects, f.app(i, k))
				}
			}
		}
		f.Step(f.now, list)
	}
	for i := range agents {
		name := agentName(i)
		f.Step(f.now, Register{Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name}})
		f.Step(f.now, FromPeer{Agent: name, Input: engine.Connected{Session: uint64(i) + 1}})
		f.now += 10
		f.receive(i, engine.Hello{Epoch: engine.Epoch{Incarnation: 1}, ClusterUID: name, Mode: "managed", Mapping: "namespace", Namespace: "argocd",
			Protocol: engine.Range{Min: 1, Max: 1}, Projection: engine.Range{Min: 1, Max: 1}})
	}
	holds := func(s engine.ScopeStatus) bool { return s.Name == kind.ApplicationScope && s.Items == fleetApps }
	if st, _ := f.Status(agentName(agents - 1)); !st.Connected || !slices.ContainsFunc(st.Scopes, holds) {
		t.Fatalf("the last agent is not in a session with its Applications: %+v", st)
	}
	return f
}

func agentName(i int) string { return fmt.Sprintf("agent-%04d", i) }

func (f *fleet) receive(agent int, m engine.Message) {
	f.Step(f.now, FromPeer{Agent: agentName(agent), Input: engine.Received{Session: uint64(agent) + 1, Message: m}})
}

// app is an Application of an agent, as it is at the next revision.
func (f *fleet) app(agent, k int) *kind.Object {
	f.t.Helper()
	f.rev++
	o, err := kind.Parse([]byte(fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"app-%d","uid":"u-%d-%d","resourceVersion":"%s"},"spec":{"project":"default","destination":{"name":%q,"namespace":"web"},"source":{"targetRevision":"r%d"}}}`,
		agentName(agent), k, agent, k, strconv.Itoa(f.rev), agentName(agent), f.rev)))
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// openProject is the AppProject of all of them.
func (f *fleet) openProject() *kind.Object {
	f.t.Helper()
	o, err := kind.Parse([]byte(`{"metadata":{"namespace":"argocd","name":"default","uid":"p","resourceVersion":"1"},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`))
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func (f *fleet) change(agent int) {
	f.Step(f.now, Observed{Resource: kind.Applications, Object: f.app(agent, 0)})
}

// project changes the project of an agent, and what it permits there.
func (f *fleet) project(agent int) {
	f.t.Helper()
	f.rev++
	name := agentName(agent)
	o, err := kind.Parse([]byte(fmt.Sprintf(`{"metadata":{"namespace":"argocd","name":"project-%d","uid":"p-%d","resourceVersion":"%d"},`+
		`"spec":{"sourceNamespaces":[%q],"sourceRepos":["https://git.example.org/%d/*"],"destinations":[{"name":%q,"namespace":"team-*"}]}}`, agent, agent, f.rev, name, f.rev, name)))
	if err != nil {
		f.t.Fatal(err)
	}
	f.Step(f.now, Observed{Resource: kind.AppProjects, Object: o})
}

func TestStep_CostDependsOnAffectedAgents(t *testing.T) {
	f := newFleet(t, 50)
	before := map[string]engine.Time{}
	for _, l := range f.index.ordered {
		before[l.name] = l.wakeAt
	}
	f.now += engine.Second
	f.change(7)
	f.receive(7, engine.Roots{})
	for _, l := range f.index.ordered {
		if l.wakeAt != before[l.name] && l.name != agentName(7) {
			t.Errorf("%s is woken at another time", l.name)
		}
	}
}

// What an input costs must not grow with the number of agents that it does not
// concern.
func BenchmarkInput(b *testing.B) {
	for _, agents := range []int{50, 5000} {
		b.Run(fmt.Sprintf("agents=%d", agents), func(b *testing.B) {
			f := newFleet(b, agents)
			b.Run("Application", func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					f.change(i % busy)
					f.NextWake()
				}
			})
			b.Run("message", func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					f.receive(i%busy, engine.Roots{Items: []engine.Root{{Scope: kind.StatusScope}}})
					f.NextWake()
				}
			})
			b.Run("tick", func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					at, ok := f.NextWake()
					if !ok {
						b.Fatal("no wake is scheduled")
					}
					f.now = max(f.now, at)
					f.Step(f.now, Tick{})
				}
			})
			b.Run("project", func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					f.project(i % busy)
					f.NextWake()
				}
			})
			b.Run("registration", func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					f.Step(f.now, Unregister{Agent: "more"})
					f.Step(f.now, Register{Agent: kind.Agent{Name: "more", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "more"}})
				}
			})
		})
	}
}

// The cost of an idle agent in addition to its connection: its agentSync and what is known of its Applications.
func BenchmarkMemory(b *testing.B) {
	const agents = 2000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newFleet(b, agents)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/agents, "B/agent")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(f)
}
