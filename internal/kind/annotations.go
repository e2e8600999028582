package kind

import (
	"cmp"
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

// Prefix is the prefix of all our annotations and labels.
const Prefix = "argocd-agent.argoproj-labs.io/"

// Confirmation is the annotation of an Agent that confirms a hold.
const Confirmation = Prefix + "confirm"

// Our annotations.
const (
	AdoptedAnnotation          = Prefix + "adopted"           // existed before we owned it
	AliasAnnotation            = Prefix + "alias"             // content that is stored differently from what was written
	SourceRevisionAnnotation   = Prefix + "source-revision"   // of the source object
	SourceGenerationAnnotation = Prefix + "source-generation" // spoke: generation of the hub of the source object
	VersionAnnotation          = Prefix + "version"           // spoke: of the item that was written
	AgentNameAnnotation        = Prefix + "agent-name"        // hub: the agent whose replica this is
	SourceNameAnnotation       = Prefix + "source-name"       // hub: [namespace/]name on the spoke, if the name here does not show it
	ChildAnnotation            = Prefix + "child"             // hub: replica of a child Application, see ChildKind
	OwnedKeysAnnotation        = Prefix + "owned-keys"        // hub: labels and annotations that came from the spoke
	ReceiptAnnotation          = Prefix + "last-command"      // spoke: commands that ran
	ApprovalRecordAnnotation   = Prefix + "approval"          // hub: what the last approval is for
)

// Argo CD's annotations that are commands. Since Argo CD 3.5 each has a time, which differs for each request.
const (
	RefreshAnnotation     = "argocd.argoproj.io/refresh"
	RefreshTimeAnnotation = "argocd.argoproj.io/refresh-timestamp"
	HydrateAnnotation     = "argocd.argoproj.io/hydrate"
	HydrateTimeAnnotation = "argocd.argoproj.io/hydrate-timestamp"
)

const defaultInstanceLabel = "app.kubernetes.io/instance"

// neverAnnotation reports whether an annotation is never replicated or hashed. Tracking annotations would make a local
// parent of the same name adopt or prune the replica. Refresh, hydrate and approvals are commands.
func neverAnnotation(key string) bool {
	switch key {
	case "notified.notifications.argoproj.io",
		"kubectl.kubernetes.io/last-applied-configuration",
		trackingAnnotation,
		"argocd.argoproj.io/installation-id",
		RefreshAnnotation, RefreshTimeAnnotation, HydrateAnnotation, HydrateTimeAnnotation, ApprovalAnnotation,
		SourceUID, PrincipalUID:
		return true
	}
	return strings.HasPrefix(key, Prefix)
}

// neverLabel is neverAnnotation for labels: Argo CD's tracking label.
func neverLabel(key string, w *Env) bool {
	return key == cmp.Or(w.InstanceLabel, defaultInstanceLabel) || strings.HasPrefix(key, Prefix)
}

// ignored reports whether the object's owner excludes it from replication.
func ignored(o *Object) bool { return o.Label(IgnoreSync) == "true" }

// selected reports whether the settings of this side select an object.
func selected(o *Object, w *Env) bool {
	if ignored(o) {
		return false
	}
	return w.Settings.LabelSelector == nil || w.Settings.LabelSelector.Matches(o.Labels())
}

// ReadOwnership returns the ownership of a replica's object.
func ReadOwnership(o *Object, w *Env) Ownership {
	if w.Agent.Mode == Standby {
		return readStandbyOwnership(o, w)
	}
	m := Ownership{
		Source:  o.Annotation(SourceUID),
		Adopted: o.Annotation(AdoptedAnnotation) == "true",
		Alias:   parseAlias(o.Annotation(AliasAnnotation)),
	}
	m.Version, _ = engine.ParseVersion(o.Annotation(VersionAnnotation))
	m.SourceRevision, _ = strconv.ParseUint(o.Annotation(SourceRevisionAnnotation), 10, 64)
	m.SourceGeneration, _ = strconv.ParseUint(o.Annotation(SourceGenerationAnnotation), 10, 64)
	principal := o.Annotation(PrincipalUID)
	switch {
	case principal == "" || m.Source == "":
	case principal != w.PrincipalUID:
		m.Foreign = true
	case w.Side == Hub && o.Annotation(AgentNameAnnotation) != w.Agent.Name:
		m.Foreign = true
	default:
		m.Owned = true
	}
	return m
}

// IsRestored reports whether an object of the hub replaces one of a lost hub, or of another hub of its group: it has the
// ownership of the hub's identity and names no agent.
func IsRestored(o *Object, w *Env) bool {
	return w.Side == Hub && w.PrincipalUID != "" && o.Annotation(PrincipalUID) == w.PrincipalUID &&
		o.Annotation(AgentNameAnnotation) == "" && validUID(o.Annotation(SourceUID))
}

// PublishedUID returns the UID under which an object is published: its own or, if it is restored, that of the object that
// it replaces. So replicas that were written from that object stay in sync.
func PublishedUID(o *Object, w *Env) string {
	if IsRestored(o, w) {
		return o.Annotation(SourceUID)
	}
	return o.UID()
}

// writeOwnership writes the ownership annotations. An object that was once adopted stays adopted.
func writeOwnership(annotations *rawjson.Object, m Ownership, sourceName string, w *Env) {
	setText(annotations, SourceUID, m.Source)
	setText(annotations, PrincipalUID, w.PrincipalUID)
	if m.Adopted {
		setText(annotations, AdoptedAnnotation, "true")
	}
	setText(annotations, AliasAnnotation, formatAlias(m.Alias))
	setText(annotations, SourceRevisionAnnotation, numberText(m.SourceRevision))
	setText(annotations, SourceGenerationAnnotation, numberText(m.SourceGeneration))
	version := ""
	if !m.Version.IsZero() {
		version = m.Version.String()
	}
	setText(annotations, VersionAnnotation, version)
	if w.Side == Hub {
		setText(annotations, AgentNameAnnotation, w.Agent.Name)
		setText(annotations, SourceNameAnnotation, sourceName)
	}
}

// numberText returns a number as text, or "" for 0.
func numberText(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// WithAlias returns an object that we own with an alias.
func WithAlias(o *Object, alias Alias) *Object {
	return o.withAnnotation(AliasAnnotation, formatAlias(alias))
}

// release returns the object without our annotations: it stays.
func release(o *Object) *Object {
	return o.changed(func(d *draft) {
		setList(&d.meta, "annotations", without(members(o.annotations), func(key string) bool {
			return key == SourceUID || key == PrincipalUID || strings.HasPrefix(key, Prefix)
		}))
	})
}

// formatAlias returns an alias as it is recorded, or "".
func formatAlias(a Alias) string {
	if a.Written.IsZero() || a.Stored.IsZero() {
		return ""
	}
	o := rawjson.Object{{Key: "written", Value: rawjson.Quote(a.Written.String())}, {Key: "stored", Value: rawjson.Quote(a.Stored.String())}}
	setText(&o, "release", a.Release)
	setText(&o, "schema", a.Schema)
	setStrings(&o, "lost", a.Lost)
	return string(o.Bytes())
}

// parseAlias parses a recorded alias. Earlier releases wrote written=stored and recorded nothing that shows whether it
// is still valid.
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
