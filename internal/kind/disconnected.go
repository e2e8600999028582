package kind

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file shows on the hub's Applications that their agent is disconnected: a condition, a notice for the UI of Argo
// CD, and health Unknown. None of it is replicated: projections are those of the Application without it.
//
// Everything needed to remove it is on the Application itself, so any principal replica can do that. The last known
// health is in a condition. It is not in an annotation, because the ApplicationSet controller removes annotations that
// it does not know.

// Disconnection is what an Application shows while its agent is disconnected.
type Disconnection struct {
	Agent      string
	Since      time.Time
	HideHealth bool // health is Unknown, and the revisions have an unknown one
	Notice     bool // the UI of Argo CD 3.5 and later shows a notice; older versions ignore it
}

// The notice of Argo CD. NoticeAnnotation is our record of a notice that is ours.
const (
	noticePrefix     = "notice.argocd.argoproj.io/"
	noticeContent    = noticePrefix + "content"
	noticeSeverity   = noticePrefix + "severity"
	NoticeAnnotation = Prefix + "notice"
)

const healthUnknown = "Unknown"

// maxLastHealth bounds the recorded health. A larger one is not hidden.
const maxLastHealth = 4 << 10

// ShowDisconnected returns a hub's Application that shows that its agent is disconnected. It returns the same object if
// it does.
func ShowDisconnected(o *Object, d Disconnection) *Object {
	since := d.Since.UTC().Format(time.RFC3339)
	message := "Agent " + d.Agent + " has been disconnected since " + since + ". Status and resources are those of that time."
	o = SetCondition(o, ConditionDisconnected, message, d.Since)
	if d.HideHealth {
		o = hideState(o, since)
	} else {
		o = restoreState(o)
	}
	if d.Notice {
		return setNotice(o, message)
	}
	return removeNotice(o)
}

// ClearDisconnected returns a hub's Application that does not show that its agent is disconnected. It returns the same
// object if it does not.
func ClearDisconnected(o *Object) *Object {
	if !ShowsDisconnected(o) {
		return o
	}
	return removeNotice(restoreState(ClearCondition(o, ConditionDisconnected)))
}

// ShowsDisconnected reports whether a hub's Application has something that ShowDisconnected set.
func ShowsDisconnected(o *Object) bool {
	if o.Annotation(NoticeAnnotation) != "" {
		return true
	}
	list := o.Get("status", "conditions")
	return bytes.Contains(list, []byte(`"Agent`)) && slices.ContainsFunc(ourConditions(list), isDisconnection)
}

// ShowsNotice reports whether the notice of an Application is ours.
func ShowsNotice(o *Object) bool { return isOurNotice(members(o.annotations)) }

func isDisconnection(condition []byte) bool {
	t := rawjson.Text(condition, "type")
	return t == ConditionDisconnected || t == ConditionLastHealth
}

// hideState sets health Unknown, and records the last known one. It also adds an entry to the revisions: an ApplicationSet
// with RollingSync that has seen an Application as healthy looks at its health again only if the revisions change.
func hideState(o *Object, since string) *Object {
	status := members(o.Get("status"))
	health := rawjson.Text(status.Get("health"), "status")
	last, err := rawjson.Canonical(status.Get("health"))
	hides := health != "" && health != healthUnknown && err == nil && len(last) <= maxLastHealth
	if hides {
		setConditions(&status, withoutCondition(status.Get("conditions"), ConditionLastHealth), [][]byte{condition(ConditionLastHealth, string(last), since)})
		unknown := rawjson.Object{{Key: "lastTransitionTime", Value: rawjson.Quote(since)}, {Key: "status", Value: rawjson.Quote(healthUnknown)}}
		status.Set("health", unknown.Bytes())
	}
	sync, marked := withUnknownRevision(status.Get("sync"))
	if marked {
		status.Set("sync", sync)
	}
	if !hides && !marked {
		return o
	}
	return withStatus(o, status)
}

func restoreState(o *Object) *Object {
	before := o.Get("status")
	status := members(withLastState(before))
	list := status.Get("conditions")
	kept := withoutCondition(list, ConditionLastHealth)
	if len(kept) != len(list) {
		setConditions(&status, kept, nil)
	} else if !hasUnknownRevision(before) {
		return o
	}
	return withStatus(o, status)
}

// withLastState returns a status of the hub as the spoke reported it last, if a part of that is hidden. Another health
// than Unknown was set since, and stays.
func withLastState(status []byte) []byte {
	for _, c := range ourConditions(rawjson.Get(status, "conditions")) {
		last := []byte(rawjson.Text(c, "message"))
		if rawjson.Text(c, "type") != ConditionLastHealth || !isObject(last) || rawjson.Check(last, maxLastHealth) != nil ||
			rawjson.Text(status, "health", "status") != healthUnknown {
			continue
		}
		if restored, err := rawjson.Set(status, last, "health"); err == nil {
			status = restored
		}
	}
	if hasUnknownRevision(status) {
		status = edited(status, withoutUnknownRevision, "sync")
	}
	return status
}

// unknownRevision is an entry that no repository has as a revision.
const unknownRevision = "agent-disconnected"

func hasUnknownRevision(status []byte) bool {
	revisions, _ := rawjson.Strings(rawjson.Get(status, "sync", "revisions"))
	return slices.Contains(revisions, unknownRevision)
}

// withUnknownRevision adds an unknown revision to a sync status. It is added twice if there was a list before, so that
// withoutUnknownRevision restores what was there.
func withUnknownRevision(sync []byte) ([]byte, bool) {
	list, revision := rawjson.Get(sync, "revisions"), rawjson.Text(sync, "revision")
	revisions, ok := rawjson.Strings(list)
	switch {
	case slices.Contains(revisions, unknownRevision):
		return sync, false
	case list == nil && revision != "":
		revisions = []string{revision, unknownRevision}
	case ok && len(revisions) > 0:
		revisions = append(revisions, unknownRevision, unknownRevision)
	default:
		return sync, false // nothing is known of it
	}
	marked, err := rawjson.Set(sync, rawjson.AppendStrings(nil, revisions), "revisions")
	return marked, err == nil
}

func withoutUnknownRevision(sync []byte) []byte {
	revisions, _ := rawjson.Strings(rawjson.Get(sync, "revisions"))
	kept := slices.DeleteFunc(slices.Clone(revisions), func(r string) bool { return r == unknownRevision })
	restored, err := rawjson.Set(sync, rawjson.AppendStrings(nil, kept), "revisions")
	if len(revisions)-len(kept) == 1 {
		restored, err = rawjson.Remove(sync, "revisions")
	}
	if err != nil {
		return sync
	}
	return restored
}

// setNotice sets our notice, unless the Application has one of its users.
func setNotice(o *Object, content string) *Object {
	annotations := members(o.annotations)
	ours := isOurNotice(annotations)
	if ours && rawjson.Text(annotations.Get(noticeContent)) == content {
		return o
	}
	if !ours && slices.ContainsFunc(annotations, func(m rawjson.Member) bool { return strings.HasPrefix(m.Key, noticePrefix) }) {
		return removeNotice(o)
	}
	setText(&annotations, noticeContent, content)
	setText(&annotations, noticeSeverity, "warning")
	setText(&annotations, NoticeAnnotation, content)
	return o.changed(func(d *draft) { setList(&d.meta, "annotations", annotations) })
}

func removeNotice(o *Object) *Object {
	if o.Annotation(NoticeAnnotation) == "" {
		return o
	}
	return o.changed(func(d *draft) { setList(&d.meta, "annotations", withoutNotice(members(o.annotations))) })
}

// withoutNotice removes our notice and its record from annotations. A notice that a user has changed stays.
func withoutNotice(annotations rawjson.Object) rawjson.Object {
	if isOurNotice(annotations) {
		annotations = without(annotations, isNotice)
	}
	return without(annotations, func(key string) bool { return key == NoticeAnnotation })
}

func isOurNotice(annotations rawjson.Object) bool {
	ours := annotations.Get(NoticeAnnotation)
	return len(ours) > 0 && bytes.Equal(ours, annotations.Get(noticeContent))
}

// isNotice reports whether an annotation is one that setNotice sets for Argo CD.
func isNotice(key string) bool { return key == noticeContent || key == noticeSeverity }

// ApplicationSets is the resource of ApplicationSets, which are not replicated.
var ApplicationSets = Resource{"argoproj.io", "v1alpha1", "applicationsets", "ApplicationSet"}

// ApplicationSetOf returns the ApplicationSet that created an Application. It returns false if there is none.
func ApplicationSetOf(o *Object) (Ref, bool) {
	owners, _ := rawjson.Elements(o.Get("metadata", "ownerReferences"))
	for _, owner := range owners {
		name := rawjson.Text(owner, "name")
		if strings.HasPrefix(rawjson.Text(owner, "apiVersion"), ApplicationSets.Group+"/") && rawjson.Text(owner, "kind") == ApplicationSets.Kind && isSubdomain(name) {
			return Ref{Resource: ApplicationSets, Namespace: o.Namespace(), Name: name}, true
		}
	}
	return Ref{}, false
}

// IsRollingSync reports whether an ApplicationSet updates its Applications in steps and waits for their health.
func IsRollingSync(set *Object) bool {
	return rawjson.Text(set.Get("spec", "strategy", "type")) == "RollingSync"
}
