// Package appmetrics exports metrics of agents' Applications under the names and labels of Argo CD's application
// controller, which the hub does not run. Dashboards and alerts for Argo CD work with them.
package appmetrics

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Agents knows where Applications are placed.
type Agents interface {
	// AgentOf returns the agent on which an Application is placed. It is empty if there is none.
	AgentOf(namespace, name string) string
	// Server returns the server URL of an agent's cluster. It returns false if another principal replica reports the
	// agent's Applications.
	Server(agent string) (string, bool)
}

// Collector knows what the Applications of the hub report. It has an entry for each of them.
type Collector struct {
	agents Agents

	mu     sync.Mutex
	apps   map[[2]string]*app
	listed reconcile.ListedNames
}

// app is small, because every principal replica has the Applications of all agents.
type app struct {
	info     unique.Handle[info] // that Applications of one ApplicationSet share
	finished string              // the last operation; empty if there was none
	syncs    map[syncKey]int     // that ended since this process knows the Application
}

// info has the labels of argocd_app_info.
type info struct {
	project, autoSync, repo, destNamespace, sync, health, operation string
}

// syncKey has the labels of argocd_app_sync_total. There are few: phases and whether it was a dry run.
type syncKey struct{ phase, dryRun string }

// New returns a Collector.
func New(agents Agents) *Collector {
	return &Collector{agents: agents, apps: map[[2]string]*app{}}
}

// Follow processes what the reconciler has processed.
func (c *Collector) Follow(in reconcile.Input) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource == kind.Applications {
			c.observe(in.Object)
		}
	case reconcile.Deleted:
		if in.Ref.Resource == kind.Applications {
			delete(c.apps, [2]string{in.Ref.Namespace, in.Ref.Name})
		}
	case reconcile.List:
		if in.Resource != kind.Applications {
			return
		}
		for _, o := range in.Objects {
			c.observe(o)
		}
		if present := c.listed.Add(in); present != nil {
			maps.DeleteFunc(c.apps, func(key [2]string, _ *app) bool {
				return (in.Namespace == "" || key[0] == in.Namespace) && !present[key]
			})
		}
	}
}

func (c *Collector) observe(o *kind.Object) {
	key := [2]string{o.Namespace(), o.Name()}
	state := o.Get("status", "operationState")
	finished := rawjson.Text(state, "finishedAt")
	a := c.apps[key]
	if a == nil {
		a = &app{finished: finished} // it ended before
		c.apps[key] = a
	}
	a.info = unique.Make(readInfo(o))
	if finished <= a.finished { // the same one, or an older state
		return
	}
	a.finished = finished
	if a.syncs == nil {
		a.syncs = map[syncKey]int{}
	}
	dryRun := string(rawjson.Get(state, "operation", "sync", "dryRun")) == "true"
	a.syncs[syncKey{phaseOf(rawjson.Text(state, "phase")), strconv.FormatBool(dryRun)}]++
}

// phaseOf bounds the values of a label that an agent sets.
func phaseOf(phase string) string {
	if slices.Contains([]string{"Succeeded", "Failed", "Error"}, phase) {
		return phase
	}
	return "Unknown"
}

func readInfo(o *kind.Object) info {
	operation := ""
	switch {
	case o.IsDeleting():
		operation = "delete"
	case len(o.Get("operation", "sync")) > 0:
		operation = "sync"
	}
	automated := o.Get("spec", "syncPolicy", "automated")
	enabled := len(automated) > 0 && string(automated) != "null" && string(rawjson.Get(automated, "enabled")) != "false"
	text := func(path ...string) string { return rawjson.Text(o.Raw(), path...) }
	return info{
		project: kind.ProjectOf(o), autoSync: strconv.FormatBool(enabled), repo: normalizeGitURL(repoOf(o)), destNamespace: text("spec", "destination", "namespace"),
		sync: cmp.Or(text("status", "sync", "status"), "Unknown"), health: cmp.Or(text("status", "health", "status"), "Unknown"), operation: operation,
	}
}

// repoOf returns the repository of an Application or, if it has several sources, of the first.
func repoOf(o *kind.Object) string {
	if sources, err := rawjson.Elements(o.Get("spec", "sources")); err == nil && len(sources) > 0 {
		return rawjson.Text(sources[0], "repoURL")
	}
	return rawjson.Text(o.Get("spec", "source"), "repoURL")
}

var sshURL = regexp.MustCompile(`^(ssh://)?([^/:]*?)@[^@]+$`)

// normalizeGitURL returns a repository URL in the form that Argo CD's controller uses in its metrics.
func normalizeGitURL(repo string) string {
	repo = strings.ToLower(strings.TrimSpace(repo))
	if sshURL.MatchString(repo) && !strings.HasPrefix(repo, "ssh://") {
		repo = "ssh://" + strings.Replace(repo, ":", "/", 1)
	}
	u, err := url.Parse(strings.TrimSuffix(repo, ".git"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.String(), "ssh://")
}

// Metrics returns the metrics of the Applications that this replica reports.
func (c *Collector) Metrics() []observe.Metric {
	infos := observe.Metric{Name: "argocd_app_info", Help: "Information about an agent's Application, as Argo CD's application controller exports it."}
	syncs := observe.Metric{Name: "argocd_app_sync_total", Help: "Syncs of an agent's Application that ended since the principal started.", Counter: true}
	servers := map[string]string{} // by agent; empty if another replica reports it
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(c.apps), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		agent := c.agents.AgentOf(key[0], key[1])
		if agent == "" {
			continue
		}
		server, known := servers[agent]
		if !known {
			if url, ok := c.agents.Server(agent); ok {
				server = url
			}
			servers[agent] = server
		}
		if server == "" {
			continue
		}
		a := c.apps[key]
		i := a.info.Value()
		infos.Samples = append(infos.Samples, observe.Sample{Value: 1, Labels: []string{"autosync_enabled", i.autoSync,
			"dest_namespace", i.destNamespace, "dest_server", server, "health_status", i.health, "name", key[1], "namespace", key[0],
			"operation", i.operation, "project", i.project, "repo", i.repo, "sync_status", i.sync}})
		for _, s := range slices.SortedFunc(maps.Keys(a.syncs), func(a, b syncKey) int { return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.dryRun, b.dryRun)) }) {
			syncs.Samples = append(syncs.Samples, observe.Sample{Value: float64(a.syncs[s]), Labels: []string{"dest_server", server, "dry_run", s.dryRun,
				"name", key[1], "namespace", key[0], "phase", s.phase, "project", i.project}})
		}
	}
	return []observe.Metric{infos, syncs}
}
