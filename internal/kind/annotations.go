package kind

import (
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Names that existing installations of this architecture use.
const (
	SourceUID         = "argocd.argoproj.io/source-uid"
	PrincipalUID      = "argocd.argoproj.io/principal-uid"
	AdoptionPolicy    = "argocd.argoproj.io/adoption-policy"
	UIDMismatchPolicy = "argocd.argoproj.io/source-uid-mismatch-policy"
	IgnoreSync        = Prefix + "ignore-sync"
)

// Prefix of everything that is ours alone.
const Prefix = "argocd-agent.argoproj-labs.io/"

// Confirmation is the annotation of an agent's Agent object that lets a held
// deletion go ahead.
const Confirmation = Prefix + "confirm"

// Our own annotations.
const (
	AdoptedAnnotation       = Prefix + "adopted"         // existed before it became ours
	AliasMark         = Prefix + "alias"           // content that is stored differently from what was written
	RevisionMark      = Prefix + "source-revision" // of the object it came from
	AgentNameMark     = Prefix + "agent-name"      // hub: whose copy this is
	SourceNameMark    = Prefix + "source-name"     // hub: [namespace/]name on the spoke, where the name here does not say it
	OwnedKeysMark     = Prefix + "owned-keys"      // hub: labels and annotations that came from the spoke
	ReceiptAnnotation = Prefix + "last-command"    // spoke: commands that were carried out
)

// Annotations of Argo CD that are commands.
const (
	RefreshAnnotation = "argocd.argoproj.io/refresh"
	HydrateAnnotation = "argocd.argoproj.io/hydrate"
)

const defaultInstanceLabel = "app.kubernetes.io/instance"

// neverAnnotation lists annotations that are neither replicated nor hashed, in
// either direction. Tracking annotations would make a local parent of the same
// name adopt or prune the copy; refresh and hydrate are commands.
func neverAnnotation(key string) bool {
	switch key {
	case "notified.notifications.argoproj.io",
		"kubectl.kubernetes.io/last-applied-configuration",
		"argocd.argoproj.io/tracking-id",
		"argocd.argoproj.io/installation-id",
		RefreshAnnotation, HydrateAnnotation,
		SourceUID, PrincipalUID:
		return true
	}
	return strings.HasPrefix(key, Prefix)
}

// neverLabel is neverAnnotation for labels: the one by which Argo CD tracks.
func neverLabel(key string, w *Env) bool {
	instance := w.InstanceLabel
	if instance == "" {
		instance = defaultInstanceLabel
	}
	return key == instance || strings.HasPrefix(key, Prefix)
}

// ignored tells that the object's owner wants it left alone.
func ignored(o *Object) bool { return o.Label(IgnoreSync) == "true" }

// selected reports whether the settings of this side let an object be replicated.
func selected(o *Object, w *Env) bool {
	if ignored(o) {
		return false
	}
	return w.Settings.LabelSelector == nil || w.Settings.LabelSelector.Matches(o.Labels())
}

// ReadOwnership returns the mark of a replica's object.
func ReadOwnership(o *Object, w *Env) Ownership {
	m := Ownership{
		Source:  o.Annotation(SourceUID),
		Adopted: o.Annotation(AdoptedAnnotation) == "true",
		Alias:   parseAlias(o.Annotation(AliasMark)),
	}
	m.SourceRevision, _ = strconv.ParseUint(o.Annotation(RevisionMark), 10, 64)
	principal := o.Annotation(PrincipalUID)
	switch {
	case principal == "" || m.Source == "":
	case principal != w.PrincipalUID:
		m.Foreign = true
	case w.Side == Hub && o.Annotation(AgentNameMark) != w.Agent.Name:
		m.Foreign = true
	default:
		m.Owned = true
	}
	return m
}

// writeOwnership puts the mark into a list of annotations. An object that was once
// adopted stays adopted.
func writeOwnership(annotations *rawjson.Object, m Ownership, sourceName string, w *Env) {
	set := func(key, value string) {
		if value == "" {
			annotations.Remove(key)
			return
		}
		annotations.Set(key, rawjson.Quote(value))
	}
	set(SourceUID, m.Source)
	set(PrincipalUID, w.PrincipalUID)
	if m.Adopted {
		set(AdoptedAnnotation, "true")
	}
	set(AliasMark, formatAlias(m.Alias))
	if m.SourceRevision != 0 {
		set(RevisionMark, strconv.FormatUint(m.SourceRevision, 10))
	} else {
		set(RevisionMark, "")
	}
	if w.Side == Hub {
		set(AgentNameMark, w.Agent.Name)
		set(SourceNameMark, sourceName)
	}
}

// WithAlias returns an object of ours with an alias in its mark.
func WithAlias(o *Object, alias Alias) *Object {
	d := edit(o)
	annotations := members(o.annotations)
	if text := formatAlias(alias); text != "" {
		annotations.Set(AliasMark, rawjson.Quote(text))
	} else {
		annotations.Remove(AliasMark)
	}
	setList(&d.meta, "annotations", annotations)
	marked, err := d.done()
	if err != nil {
		return o
	}
	return marked
}

// release returns the object without anything of ours: it stays, as not ours.
func release(o *Object) *Object {
	d := edit(o)
	var kept rawjson.Object
	for _, m := range members(o.annotations) {
		if m.Key != SourceUID && m.Key != PrincipalUID && !strings.HasPrefix(m.Key, Prefix) {
			kept = append(kept, m)
		}
	}
	setList(&d.meta, "annotations", kept)
	released, err := d.done()
	if err != nil {
		return o
	}
	return released
}

// formatAlias returns an alias as it is recorded, empty if there is none.
func formatAlias(a Alias) string {
	if a.Written.IsZero() || a.Stored.IsZero() {
		return ""
	}
	o := rawjson.Object{{Key: "written", Value: rawjson.Quote(a.Written.String())}, {Key: "stored", Value: rawjson.Quote(a.Stored.String())}}
	for _, m := range []struct{ key, value string }{{"release", a.Release}, {"schema", a.Schema}} {
		if m.value != "" {
			o.Set(m.key, rawjson.Quote(m.value))
		}
	}
	if len(a.Lost) > 0 {
		o.Set("lost", rawjson.AppendStrings(nil, a.Lost))
	}
	return string(o.Bytes())
}

// parseAlias reads a recorded alias. Earlier releases wrote written=stored, and
// recorded nothing that would report whether it still holds.
func parseAlias(s string) Alias {
	if s == "" {
		return Alias{}
	}
	written, stored, ok := strings.Cut(s, "=")
	var a Alias
	if v := []byte(s); isObject(v) && rawjson.Check(v, maxAlias) == nil {
		written, stored, ok = rawjson.Text(v, "written"), rawjson.Text(v, "stored"), true
		a.Release, a.Schema = rawjson.Text(v, "release"), rawjson.Text(v, "schema")
		a.Lost, _ = rawjson.Strings(rawjson.Get(v, "lost"))
		a.Lost = ShortFields(a.Lost)
	}
	var err1, err2 error
	a.Written, err1 = engine.ParseVersion(written)
	a.Stored, err2 = engine.ParseVersion(stored)
	if !ok || err1 != nil || err2 != nil {
		return Alias{}
	}
	return a
}

// maxAlias bounds a recorded alias.
const maxAlias = 4 << 10
