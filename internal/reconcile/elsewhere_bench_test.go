package reconcile

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// The memory of the core for an agent without a session, and for one Application of 6 kB: with its content, and while the
// agent is elsewhere.
func BenchmarkElsewhere(b *testing.B) {
	const agents, apps = 500, 10
	values := strings.Repeat("key: value of some length\\n", 200)
	live := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	b.ReportMetric(0, "ns/op")
	for range b.N {
		before := live()
		f := &fleet{t: b, now: 1_000_000, Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"})}
		elsewhere := Elsewhere{Agents: map[string]bool{}}
		for i := range agents {
			elsewhere.Agents[agentName(i)] = true
			f.Step(f.now, Register{Agent: kind.Agent{Name: agentName(i), Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: agentName(i)}})
		}
		for _, r := range Resources() {
			list := List{Resource: r, Revision: 100}
			if r == kind.AppProjects {
				list.Objects = append(list.Objects, f.openProject())
			}
			f.Step(f.now, list)
		}
		empty := live()
		for i := range agents {
			for k := range apps {
				f.rev++
				o, err := kind.Parse(fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":"app-%d","uid":"00000000-0000-0000-%04d-%012d","resourceVersion":"%s","creationTimestamp":"2026-01-01T00:00:00Z","generation":7},`+
					`"spec":{"project":"default","destination":{"name":%q,"namespace":"web"},"source":{"repoURL":"https://git.example.org/team/app.git","targetRevision":"main","helm":{"values":"%s"}}},`+
					`"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`, agentName(i), k, i, k, strconv.Itoa(1000+f.rev), agentName(i), values))
				if err != nil {
					b.Fatal(err)
				}
				f.Step(f.now, Observed{Resource: kind.Applications, Object: o})
			}
		}
		full := live()
		f.Step(f.now, elsewhere)
		reduced := live()
		if f.Reduced(agentName(0)) != apps {
			b.Fatal("the Applications are not reduced")
		}
		b.ReportMetric((empty-before)/agents, "B/agent")
		b.ReportMetric((full-empty)/agents/apps, "B/Application")
		b.ReportMetric((reduced-empty)/agents/apps, "B/Application-elsewhere")
		runtime.KeepAlive(f)
	}
}
