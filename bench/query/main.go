// Command query measures the read model of the fleet with synthetic Applications: the time of filtered pages, counts,
// groups and watches, and its memory compared with that of the Applications that the principal holds.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/query"
)

func main() {
	agents := flag.Int("agents", 10_000, "number of agents")
	apps := flag.Int("apps", 10, "number of Applications of each agent")
	runs := flag.Int("runs", 200, "number of measurements of each query")
	out := flag.String("out", "dist/bench-query.json", "file for the figures")
	flag.Parse()
	if err := run(*agents, *apps, *runs, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// started is the time of the synthetic fleet.
var started = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func run(agents, apps, runs int, out string) error {
	r := report.New(fmt.Sprintf("Queries over %d agents with %d Applications each", agents, apps))
	empty := heap()
	report.Progress("creating %d Applications", agents*apps)
	objects := make([]*kind.Object, 0, agents*apps)
	for i := range agents * apps {
		o, err := kind.Parse([]byte(manifest(i/apps, i%apps)))
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	held := heap() - empty
	report.Progress("filling the model")
	model := query.NewModel("bench")
	fill := time.Now()
	for _, o := range objects {
		a := query.ReadApplication(o)
		a.Agent = a.Namespace
		model.Set(a)
	}
	r.Add("time to read one Application", float64(time.Since(fill).Microseconds())/float64(len(objects)), "µs")
	rows := heap() - empty - held
	r.Add("memory of Applications that the principal holds", float64(held)/1e6, "MB")
	r.Add("memory of the model", float64(rows)/1e6, "MB")
	r.AtMost(1.5, "memory with the model, ratio to the Applications alone", float64(held+rows)/float64(held), "×")
	if err := measure(r, model, runs); err != nil {
		return err
	}
	runtime.KeepAlive(objects)
	return r.Finish(out)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measure measures queries of a caller who may see all Applications, and of one who may see those of every second agent.
func measure(r *report.Report, model *query.Model, runs int) error {
	report.Progress("measuring")
	everything := query.Scope{Namespace: query.Any, Project: query.Any, Agent: query.Any}
	half := query.Scope{Namespace: query.Any, Project: query.Any, Agent: func(agent string) bool { return agent[len(agent)-1]%2 == 0 }}
	clock := query.Clock{Now: started.Add(24 * time.Hour), InSync: func(agent string) time.Time { return started.Add(time.Duration(len(agent)) * time.Hour) }}
	var pages, counts float64 // CPU time of the slowest query
	for _, text := range []string{"", "health!=Healthy", "image~nginx:1.2*", "revision!=" + revision(1), "label.team=team-3 sync=OutOfSync", "freshness>1h", "web-7", "agent=agent-00042"} {
		q, err := query.Parse(text)
		if err != nil {
			return err
		}
		for i, scope := range []query.Scope{everything, half} {
			wall, cpu, err := percentiles(runs, func() error {
				_, err := model.Snapshot().List(query.Request{Query: q, Limit: 100, Sort: "-changed"}, scope, clock)
				return err
			})
			if err != nil {
				return err
			}
			r.AtMost(50, fmt.Sprintf("page of 100 of %q, caller sees %s, 99th percentile", text, []string{"all agents", "half of the agents"}[i]), wall, "ms")
			pages = max(pages, cpu)
		}
	}
	for _, by := range []string{"", "health", "agent", "image", "label.team", "freshness"} {
		q, err := query.Parse("health!=Missing")
		if err != nil {
			return err
		}
		wall, cpu, err := percentiles(runs, func() error {
			_, err := model.Snapshot().Count(q, by, 100, half, clock)
			return err
		})
		if err != nil {
			return err
		}
		r.AtMost(100, fmt.Sprintf("count by %q, 99th percentile", by), wall, "ms")
		counts = max(counts, cpu)
	}
	r.AtMost(50, "CPU time of a page, slowest query, 99th percentile", pages, "ms")
	r.AtMost(100, "CPU time of a count, slowest query, 99th percentile", counts, "ms")
	snapshot, _, err := percentiles(runs, func() error { model.Snapshot(); return nil })
	r.Add("time for which a query stops updates, 99th percentile", snapshot, "ms")
	return err
}

// percentiles returns the 99th percentiles of the time of do and of its CPU time, in milliseconds. On a busy machine, the
// former includes the time of other programs.
func percentiles(runs int, do func() error) (wall, cpu float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	walls, cpus := make([]float64, 0, runs), make([]float64, 0, runs)
	for range runs {
		start, used := time.Now(), threadTime()
		if err := do(); err != nil {
			return 0, 0, err
		}
		walls = append(walls, float64(time.Since(start).Microseconds())/1000)
		cpus = append(cpus, float64((threadTime()-used).Microseconds())/1000)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return report.Percentile(walls, 99), report.Percentile(cpus, 99), nil
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD of Linux
	var usage syscall.Rusage
	if syscall.Getrusage(thisThread, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func revision(n int) string { return fmt.Sprintf("%040x", n) }

// manifest returns an Application as the API server stores it, without managed fields.
func manifest(agent, app int) string {
	health := []string{"Healthy", "Healthy", "Healthy", "Degraded", "Progressing"}[(agent+app)%5]
	sync := []string{"Synced", "Synced", "OutOfSync"}[(agent+app)%3]
	var resources []string
	for i := range 8 {
		resources = append(resources, fmt.Sprintf(`{"version":"v1","kind":"ConfigMap","namespace":"web","name":"config-%d","status":"Synced"}`, i))
	}
	at := started.Add(time.Duration(agent*app) * time.Second).Format(time.RFC3339)
	return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"agent-%05d","name":"web-%d","uid":"%036d","resourceVersion":"%d",`+
		`"creationTimestamp":"2025-01-01T00:00:00Z","labels":{"team":"team-%d","env":"prod","app.kubernetes.io/name":"web-%d"}},`+
		`"spec":{"project":"project-%d","source":{"repoURL":"https://git.example.com/apps","path":"apps/web","targetRevision":"main"},"destination":{"name":"agent-%05d","namespace":"web"}},`+
		`"status":{"health":{"status":%q,"lastTransitionTime":%q},"sync":{"status":%q,"revision":%q},"summary":{"images":["docker.io/library/nginx:1.%d.0","docker.io/library/redis:7.%d"]},`+
		`"operationState":{"phase":"Succeeded","startedAt":%q,"finishedAt":%q},"history":[{"revision":%q,"deployedAt":%q,"id":1}],"resources":[%s]}}`,
		agent, app, agent*1000+app, agent*1000+app, app, app, agent%50, agent, health, at, sync, revision(agent%20), 20+agent%10, app, at, at, revision(agent%20), at, strings.Join(resources, ","))
}
