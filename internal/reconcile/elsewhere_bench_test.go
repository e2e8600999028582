package reconcile

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// The memory of the core for an agent without a session, for one Application of 6 kB, and for an agent that is elsewhere,
// without and with ten Applications.
func BenchmarkElsewhere(b *testing.B) {
	const agents, apps = 500, 10
	b.ReportMetric(0, "ns/op")
	for range b.N {
		before := liveMemory()
		f := newReplica(b, agents)
		f.readOthers()
		f.Step(f.now, List{Resource: kind.Applications, Revision: 100})
		empty := liveMemory()
		f.Step(f.now, elsewhere(0, agents))
		parked := liveMemory()
		f.Step(f.now, elsewhere(0, 0))
		for i := range agents {
			for k := range apps {
				f.Step(f.now, Observed{Resource: kind.Applications, Object: f.largeApplication(i, k)})
			}
		}
		full := liveMemory()
		f.Step(f.now, elsewhere(0, agents))
		reduced := liveMemory()
		if f.Reduced(agentName(0)) != apps {
			b.Fatal("the Applications are not reduced")
		}
		b.ReportMetric((empty-before)/agents, "B/agent")
		b.ReportMetric((full-empty)/agents/apps, "B/Application")
		b.ReportMetric((parked-before)/agents, "B/agent-elsewhere")
		b.ReportMetric((reduced-parked)/agents/apps, "B/Application-elsewhere")
		runtime.KeepAlive(f)
	}
}

// One of ten replicas starts on a hub with 100,000 agents and ten Applications of 6 kB each. It keeps the content only for
// 10,000 agents. Applications are read in pages of 500, as from the API server.
func BenchmarkOneOfTenReplicas(b *testing.B) {
	const agents, own, apps, page = 100_000, 10_000, 10, 50
	b.ReportMetric(0, "ns/op")
	for range b.N {
		before := liveMemory()
		f := newReplica(b, agents)
		f.readOthers()
		f.Step(f.now, elsewhere(own, agents))
		registered := liveMemory()
		var reading time.Duration
		for i := 0; i < agents; i += page {
			list := List{Resource: kind.Applications, Revision: 100, Continues: i > 0, More: i+page < agents}
			for k := range page * apps {
				list.Objects = append(list.Objects, f.largeApplication(i+k/apps, k%apps))
			}
			began := time.Now()
			f.Step(f.now, list)
			reading += time.Since(began)
		}
		read := liveMemory()
		if f.Reduced(agentName(own-1)) != 0 || f.Reduced(agentName(own)) != apps || f.Reduced(agentName(agents-1)) != apps {
			b.Fatal("the wrong Applications are reduced")
		}
		var changes []*kind.Object
		for i := range 10_000 {
			changes = append(changes, f.largeApplication(own+i, 0))
		}
		began := time.Now()
		for _, o := range changes {
			f.Step(f.now, Observed{Resource: kind.Applications, Object: o})
		}
		changed := time.Since(began)
		b.ReportMetric((registered-before)/1e6, "MB-agents")
		b.ReportMetric((read-before)/1e6, "MB")
		b.ReportMetric(float64(reading.Microseconds())/agents/apps, "µs/Application-read")
		b.ReportMetric(float64(changed.Microseconds())/float64(len(changes)), "µs/change-elsewhere")
		runtime.KeepAlive(f)
	}
}

func liveMemory() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// newReplica returns the core of a principal replica that knows the agents and has read nothing else.
func newReplica(b *testing.B, agents int) *fleet {
	b.Helper()
	f := &fleet{t: b, now: 1_000_000, Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"})}
	for i := range agents {
		f.Step(f.now, Register{Agent: kind.Agent{Name: agentName(i), Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: agentName(i)}})
	}
	return f
}

// readOthers reads everything but Applications.
func (f *fleet) readOthers() {
	for _, r := range Resources() {
		list := List{Resource: r, Revision: 100}
		switch r {
		case kind.Applications:
			continue
		case kind.AppProjects:
			list.Objects = append(list.Objects, f.openProject())
		}
		f.Step(f.now, list)
	}
}

// elsewhere returns that agents are connected to other replicas.
func elsewhere(from, to int) Elsewhere {
	e := Elsewhere{Agents: map[string]bool{}}
	for i := from; i < to; i++ {
		e.Agents[agentName(i)] = true
	}
	return e
}

var values = strings.Repeat("key: value of some length\\n", 200)

// largeApplication returns an Application of 6 kB.
func (f *fleet) largeApplication(agent, app int) *kind.Object {
	f.rev++
	o, err := kind.Parse(fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":"app-%d","uid":"00000000-0000-0000-%04d-%012d","resourceVersion":"%s","creationTimestamp":"2026-01-01T00:00:00Z","generation":7},`+
		`"spec":{"project":"default","destination":{"name":%q,"namespace":"web"},"source":{"repoURL":"https://git.example.org/team/app.git","targetRevision":"main","helm":{"values":"%s"}}},`+
		`"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`, agentName(agent), app, agent, app, strconv.Itoa(1000+f.rev), agentName(agent), values))
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}
