package policy

import (
	"bytes"
	"slices"
	"strings"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Parts of an operation that a policy can allow.
const (
	partDryRun    = "dryRun"
	partForce     = "force"
	partManifests = "manifests"
	partPrune     = "prune"
	partReplace   = "replace"
	partRetry     = "retry"
	partRollback  = "rollback"
	partSource    = "source"
)

var (
	allParts        = []string{partDryRun, partForce, partManifests, partPrune, partReplace, partRetry, partRollback, partSource}
	autonomousParts = []string{partDryRun, partPrune, partRetry, partRollback}
)

// operations is what an operation from the hub can contain.
type operations struct {
	all     bool // a managed agent without a limit
	parts   []string
	options []string // patterns; nil: those of the Application's own sync policy
	anyOpt  bool
}

func operationsOf(spec *v1alpha1.OperationPolicy, mode kind.Mode) operations {
	var o operations
	managed := mode == kind.Managed
	switch {
	case spec != nil && spec.Allow != nil:
		o.parts = spec.Allow
	case managed:
		o.parts = allParts
	default:
		o.parts = autonomousParts
	}
	switch {
	case spec != nil && spec.SyncOptions != nil:
		o.options = spec.SyncOptions
	default:
		o.anyOpt = managed
	}
	o.all = managed && spec == nil
	return o
}

// Operation returns why an operation from the hub must not run on an Application of the workload cluster; nil: it can.
func (p *Policy) Operation(app *kind.Object, operation []byte) error {
	for _, c := range p.policies {
		if c.ops.all {
			continue
		}
		if reason := c.ops.refuses(app, operation); reason != "" {
			return c.violation("operations", "%s", reason)
		}
	}
	return nil
}

// plain are the fields of an operation's sync that every policy allows.
var plain = []string{"revision", "revisions", "resources", "autoHealAttemptsCount", "sourcePositions"}

func (o *operations) refuses(app *kind.Object, operation []byte) (reason string) {
	need := func(part, what string) {
		if reason == "" && !slices.Contains(o.parts, part) {
			reason = what + " is not allowed"
		}
	}
	deny := func(what string) {
		if reason == "" {
			reason = what + " is not allowed"
		}
	}
	if rawjson.Check(operation, 0) != nil { // of two equal keys the API server would keep the last one
		return "the operation is not valid JSON"
	}
	err := rawjson.Each(operation, func(field string, value []byte) bool {
		switch {
		case rawjson.IsNull(value):
		case field == "info" || field == "initiatedBy" || field == "sync":
		case field == "retry":
			if !isEmptyObject(value) {
				need(partRetry, "retry")
			}
		default:
			deny("field " + field)
		}
		return reason == ""
	})
	if err != nil {
		return "the operation is not valid JSON"
	}
	sync := rawjson.Get(operation, "sync")
	if rawjson.IsNull(sync) {
		return reason
	}
	err = rawjson.Each(sync, func(field string, value []byte) bool {
		switch {
		case rawjson.IsNull(value) || string(value) == "false":
		case slices.Contains(plain, field):
		case field == "dryRun":
			need(partDryRun, "dryRun")
		case field == "prune":
			need(partPrune, "prune")
		case field == "manifests":
			if string(value) != "[]" {
				need(partManifests, "sync with manifests")
			}
		case field == "source", field == "sources":
			if !ownSource(app, field, value) {
				if inHistory(app, field, value) {
					need(partRollback, "a rollback")
				} else {
					need(partSource, "another source than the Application's own")
				}
			}
		case field == "syncStrategy":
			if string(rawjson.Get(value, "apply", "force")) == "true" || string(rawjson.Get(value, "hook", "force")) == "true" {
				need(partForce, "force")
			}
		case field == "syncOptions":
			options, ok := rawjson.Strings(value)
			if !ok {
				deny("a list of sync options that is not valid")
			}
			for _, option := range options {
				o.option(app, option, need, deny)
			}
		default:
			deny("field sync." + field)
		}
		return reason == ""
	})
	if err != nil {
		return "the operation is not valid JSON"
	}
	return reason
}

func (o *operations) option(app *kind.Object, option string, need func(part, what string), deny func(string)) {
	switch strings.ToLower(option) {
	case "replace=true":
		need(partReplace, "sync option "+option)
		return
	case "force=true":
		need(partForce, "sync option "+option)
		return
	}
	switch {
	case o.anyOpt:
	case o.options != nil:
		if !allows(o.options, option) {
			deny("sync option " + option)
		}
	default:
		own, _ := rawjson.Strings(app.Get("spec", "syncPolicy", "syncOptions"))
		if !slices.Contains(own, option) {
			deny("sync option " + option)
		}
	}
}

// ownSource reports whether the source of an operation is that of the Application. The revision can differ.
func ownSource(app *kind.Object, field string, value []byte) bool {
	own := app.Get("spec", field)
	if field == "source" {
		return sameSource(own, value)
	}
	a, err1 := rawjson.Elements(own)
	b, err2 := rawjson.Elements(value)
	return err1 == nil && err2 == nil && slices.EqualFunc(a, b, sameSource)
}

func sameSource(a, b []byte) bool {
	if rawjson.IsNull(a) || rawjson.IsNull(b) {
		return false
	}
	x, y := withoutRevision(a), withoutRevision(b)
	return x != nil && bytes.Equal(x, y)
}

func withoutRevision(source []byte) []byte {
	rest, err := rawjson.Remove(source, "targetRevision")
	if err != nil {
		return nil
	}
	canonical, err := rawjson.Canonical(rest)
	if err != nil {
		return nil
	}
	return canonical
}

// inHistory reports whether the Application has been deployed from a source.
func inHistory(app *kind.Object, field string, value []byte) bool {
	entries, _ := rawjson.Elements(app.Get("status", "history"))
	want, err := rawjson.Canonical(value)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e []byte) bool {
		had, err := rawjson.Canonical(rawjson.Get(e, field))
		return err == nil && len(had) > 0 && bytes.Equal(had, want)
	})
}

func isEmptyObject(b []byte) bool { return string(bytes.TrimSpace(b)) == "{}" }
