package resource

import (
	"fmt"
	"net/http"
	"path"
	"slices"
)

// Level is how much of a workload cluster the hub may access. Each level includes the previous one. The permissions of the
// agent's ServiceAccount limit all.
type Level string

const (
	LevelNone         Level = "none"        // nothing
	LevelApplications Level = "application" // objects in the resource tree of an Application
	LevelNamespaces   Level = "namespaces"  // and everything in some namespaces
	LevelAll          Level = "all"         // and everything else
)

// Secrets is how Secrets are shown.
type Secrets string

const (
	// SecretsMasked replaces values by masks. Equal values have equal masks, which is all that Argo CD shows.
	SecretsMasked Secrets = "masked"
	// SecretsPlain shows the values to the hub. Argo CD's own API still hides them.
	SecretsPlain Secrets = "plain"
)

// Names of settings, as in error messages.
const (
	SettingLevel      = "resource-proxy-level"
	SettingNamespaces = "resource-proxy-namespaces"
	SettingReads      = "resource-proxy-reads"
	SettingWrites     = "resource-proxy-writes"
	SettingCreate     = "resource-proxy-create"
	SettingLogs       = "resource-proxy-logs"
	SettingExec       = "resource-proxy-exec"
	SettingSecrets    = "resource-proxy-secrets"
	SettingOrphans    = "resource-proxy-orphans"
)

// Policy is what a workload cluster allows. The zero value is the default: all access to objects of Applications.
type Policy struct {
	Level      Level    // If empty, LevelApplications.
	Namespaces []string // for LevelNamespaces: names, or patterns with * and ?
	Secrets    Secrets  // If empty, SecretsMasked.

	// Orphans are orphaned objects that the resource tree of an Application shows. They count as objects of it.
	Orphans bool

	// Disabled access, at every level.
	NoReads  bool // get, list, watch, and dry runs
	NoWrites bool // all changes, including creation
	NoCreate bool // creation of objects
	NoLogs   bool // logs of pods
	NoExec   bool // exec, attach, port-forward, proxies into pods, debug containers

	// DisabledBy has what disabled an access instead of the setting, for messages: by setting.
	DisabledBy map[string]string
}

// Check validates a policy.
func (p *Policy) Check() error {
	switch p.Level {
	case "", LevelNone, LevelApplications, LevelAll, LevelNamespaces:
	default:
		return fmt.Errorf("%s: invalid value %q: use %s, %s, %s or %s", SettingLevel, p.Level, LevelNone, LevelApplications, LevelNamespaces, LevelAll)
	}
	if p.Level == LevelNamespaces && len(p.Namespaces) == 0 {
		return fmt.Errorf("%s is %s, but --%s is empty", SettingLevel, LevelNamespaces, SettingNamespaces)
	}
	for _, pattern := range p.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("%s: invalid pattern %q", SettingNamespaces, pattern)
		}
	}
	switch p.Secrets {
	case "", SecretsMasked, SecretsPlain:
		return nil
	}
	return fmt.Errorf("%s: invalid value %q: use %s or %s", SettingSecrets, p.Secrets, SecretsMasked, SecretsPlain)
}

// Applications maps objects to Applications. It is used for each request and must not block. Index implements it.
type Applications interface {
	// OwnerOf returns the Application whose resource tree has an object. Cluster-scoped objects have namespace "".
	OwnerOf(group, kind, namespace, name string) (app string, ok bool)
	// OwnerOfSubject returns the Application that has the subject of events.
	OwnerOfSubject(s Subject) (app string, ok bool)
	// HasNamespace returns an Application that has objects in a namespace.
	HasNamespace(namespace string) (app string, ok bool)
}

// class is the type of access that a request needs.
type class int

const (
	classRead class = iota
	classWrite
	classCreate
	classLogs
	classExec
	classToken // issues credentials
)

func (q *Request) class() class {
	switch {
	case q.Subresource == "log":
		return classLogs
	case connects(q.Subresource), q.Subresource == "ephemeralcontainers" && !q.reads():
		return classExec
	case q.Resource == "serviceaccounts" && q.Subresource == "token":
		return classToken
	case q.reads(), q.DryRun, q.isSelfReview():
		return classRead
	case q.Verb == verbCreate && q.Subresource == "":
		return classCreate
	}
	return classWrite
}

func (q *Request) reads() bool { return q.Verb == verbGet || q.Verb == verbList || q.Verb == verbWatch }

// isSelfReview reports whether a request is a self review, which is a create request but stores nothing.
func (q *Request) isSelfReview() bool {
	switch q.Resource {
	case "selfsubjectaccessreviews", "selfsubjectrulesreviews":
		return q.Group == "authorization.k8s.io" && q.Verb == verbCreate
	case "selfsubjectreviews":
		return q.Group == "authentication.k8s.io" && q.Verb == verbCreate
	}
	return false
}

// switchedOff returns the setting that denies a class of access, or "".
func (p *Policy) switchedOff(c class) string {
	switch {
	case c == classRead && p.NoReads:
		return SettingReads
	case (c == classWrite || c == classCreate || c == classToken) && p.NoWrites:
		return SettingWrites
	case (c == classCreate || c == classToken) && p.NoCreate:
		return SettingCreate
	case c == classLogs && p.NoLogs:
		return SettingLogs
	case c == classExec && p.NoExec:
		return SettingExec
	}
	return ""
}

// inNamespaces reports whether a request stays within the permitted namespaces. The Namespace itself can be read.
func (p *Policy) inNamespaces(q *Request) bool {
	namespace := q.Namespace
	if namespace == "" && q.Group == "" && q.Resource == "namespaces" && q.Verb == verbGet {
		namespace = q.Name
	}
	return namespace != "" && slices.ContainsFunc(p.Namespaces, func(pattern string) bool {
		matches, err := path.Match(pattern, namespace)
		return err == nil && matches
	})
}

// forbidden returns a Status that names the deciding setting.
func forbidden(q *Request, setting, why string) *Status {
	s := newStatus(http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: %s (the agent's setting %s decides)", q, why, setting))
	s.Details = &Details{Name: q.Name, Group: q.Group, Kind: q.Resource}
	s.setting = setting
	return s
}

// String describes a request in the words of Kubernetes error messages.
func (q *Request) String() string {
	if q.Verb == "" {
		return "this path"
	}
	resource := q.Resource
	if q.Group != "" {
		resource += "." + q.Group
	}
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	text := q.Verb + " " + resource
	if q.Name != "" {
		text += fmt.Sprintf(" %q", q.Name)
	}
	if q.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", q.Namespace)
	}
	return text
}
