package query

import (
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Application is what the model knows of an Application.
type Application struct {
	Namespace    string            `json:"namespace"`
	Name         string            `json:"name"`
	Agent        string            `json:"agent,omitempty"` // empty if it belongs to no agent
	Project      string            `json:"project"`
	Health       string            `json:"health"`
	Sync         string            `json:"sync"`
	Operation    string            `json:"operation,omitempty"` // phase of the last operation
	Revisions    []string          `json:"revisions,omitempty"` // that are deployed, one per source
	Images       []string          `json:"images,omitempty"`
	Charts       []string          `json:"charts,omitempty"` // name:version
	Repositories []string          `json:"repositories,omitempty"`
	Conditions   []string          `json:"conditions,omitempty"` // types
	Labels       map[string]string `json:"labels,omitempty"`
	Changed      time.Time         `json:"changed,omitzero"` // last change of health, operation or conditions
	InSync       time.Time         `json:"inSync,omitzero"`  // when hub and agent were last in sync; zero if unknown
	Truncated    bool              `json:"truncated,omitempty"`
}

// Limits of one row. An agent reports the status, so its lists can be of any length.
const (
	maxText       = 512 // bytes
	maxImages     = 128
	maxSources    = 32
	maxConditions = 32
	maxLabels     = 64
)

const unknown = "Unknown"

// ReadApplication returns what the model needs of an Application. It does not set Agent.
func ReadApplication(o *kind.Object) Application {
	r := reader{app: Application{Namespace: o.Namespace(), Name: o.Name(), Project: kind.ProjectOf(o), Health: unknown, Sync: unknown}}
	r.readLabels(o)
	r.changedAt(rawjson.Text(o.Get("metadata"), "creationTimestamp"))
	_ = rawjson.Each(o.Get("status"), func(key string, value []byte) bool {
		r.readStatus(key, value)
		return true
	})
	if r.app.Sync == "Synced" {
		r.app.Revisions = r.compared
	} else {
		r.app.Revisions = r.deployed
	}
	r.readSources(o.Get("spec"))
	return r.app
}

// reader collects the fields of one Application.
type reader struct {
	app                Application
	compared, deployed []string // revisions
}

func (r *reader) readStatus(key string, value []byte) {
	switch key {
	case "health":
		r.setText(&r.app.Health, rawjson.Text(value, "status"))
		r.changedAt(rawjson.Text(value, "lastTransitionTime"))
	case "sync":
		r.setText(&r.app.Sync, rawjson.Text(value, "status"))
		r.compared = r.revisions(value)
	case "operationState":
		r.setText(&r.app.Operation, rawjson.Text(value, "phase"))
		r.changedAt(rawjson.Text(value, "startedAt"))
		r.changedAt(rawjson.Text(value, "finishedAt"))
	case "summary":
		r.app.Images = r.list(stringList(rawjson.Get(value, "images")), maxImages)
	case "history":
		if all, err := rawjson.Elements(value); err == nil && len(all) > 0 {
			last := all[len(all)-1]
			r.deployed = r.revisions(last)
			r.changedAt(rawjson.Text(last, "deployedAt"))
		}
	case "conditions":
		all, _ := rawjson.Elements(value)
		var types []string
		for _, c := range all {
			types = append(types, rawjson.Text(c, "type"))
			r.changedAt(rawjson.Text(c, "lastTransitionTime"))
		}
		slices.Sort(types)
		r.app.Conditions = r.list(slices.Compact(types), maxConditions)
	}
}

// revisions reads the revision of one source, or those of several.
func (r *reader) revisions(b []byte) []string {
	if all := stringList(rawjson.Get(b, "revisions")); len(all) > 0 {
		return r.list(all, maxSources)
	}
	return r.list([]string{rawjson.Text(b, "revision")}, maxSources)
}

func (r *reader) readSources(spec []byte) {
	sources, err := rawjson.Elements(rawjson.Get(spec, "sources"))
	if err != nil || len(sources) == 0 {
		sources = [][]byte{rawjson.Get(spec, "source")}
	}
	var repositories, charts []string
	for i, source := range sources {
		repositories = append(repositories, rawjson.Text(source, "repoURL"))
		chart := rawjson.Text(source, "chart")
		if chart == "" {
			continue
		}
		version := rawjson.Text(source, "targetRevision") // may be a range
		if len(r.app.Revisions) == len(sources) {
			version = r.app.Revisions[i]
		}
		charts = append(charts, chart+":"+version)
	}
	slices.Sort(repositories)
	r.app.Repositories = r.list(slices.Compact(repositories), maxSources)
	r.app.Charts = r.list(charts, maxSources)
}

func (r *reader) readLabels(o *kind.Object) {
	labels := o.Labels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if len(r.app.Labels) == maxLabels || len(key)+len(value) > maxText {
			r.app.Truncated = true
			continue
		}
		if r.app.Labels == nil {
			r.app.Labels = map[string]string{}
		}
		r.app.Labels[key] = value
	}
}

// setText sets a value of a status, unless it is empty.
func (r *reader) setText(to *string, value string) {
	if value != "" {
		*to = r.limit(value)
	}
}

func (r *reader) limit(value string) string {
	if len(value) <= maxText {
		return value
	}
	r.app.Truncated = true
	end := maxText
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

// list returns at most limit values that are not empty.
func (r *reader) list(values []string, limit int) []string {
	var out []string
	for _, v := range values {
		if v == "" {
			continue
		}
		if len(out) == limit {
			r.app.Truncated = true
			break
		}
		out = append(out, r.limit(v))
	}
	return out
}

// changedAt records the time of a change. An invalid time counts as none.
func (r *reader) changedAt(text string) {
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(r.app.Changed) {
		r.app.Changed = at.UTC()
	}
}

func stringList(b []byte) []string {
	list, _ := rawjson.Strings(b)
	return list
}
