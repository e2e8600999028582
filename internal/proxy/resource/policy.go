package resource

import (
	"fmt"
	"net/http"
	"path"
	"slices"
)

// Level is how much of a workload cluster the hub may see and touch through the proxy. Each includes those before it,
// and the rights of the agent's ServiceAccount are the outer bound of all.
type Level string

const (
	LevelNone         Level = "none"        // nothing at all
	LevelApplications Level = "application" // objects in the resource tree of an Application
	LevelNamespaces   Level = "namespaces"  // and everything in some namespaces
	LevelAll          Level = "all"         // and everything else
)

// Secrets is how Secrets are shown.
type Secrets string

const (
	// SecretsMasked hides the values: equal ones look equal and others do not, which is all that Argo CD shows of them.
	SecretsMasked Secrets = "masked"
	// SecretsPlain shows the values to the hub. Argo CD's own API still hides them.
	SecretsPlain Secrets = "plain"
)

// Names of settings, as refusals give them.
const (
	SettingLevel      = "resource-proxy-level"
	SettingNamespaces = "resource-proxy-namespaces"
	SettingReads      = "resource-proxy-reads"
	SettingWrites     = "resource-proxy-writes"
	SettingCreate     = "resource-proxy-create"
	SettingLogs       = "resource-proxy-logs"
	SettingExec       = "resource-proxy-exec"
	SettingSecrets    = "resource-proxy-secrets"
)

// Policy is what a workload cluster allows. The zero value is the default: objects of Applications, in every way.
type Policy struct {
	Level      Level    // empty: LevelApplications
	Namespaces []string // for LevelNamespaces: names, or patterns with * and ?
	Secrets    Secrets  // empty: SecretsMasked

	// What is switched off, at every level.
	NoReads  bool // get, list, watch, and dry runs
	NoWrites bool // whatever changes something, creation included
	NoCreate bool // creation of objects
	NoLogs   bool // logs of pods
	NoExec   bool // exec, attach, port-forward, proxies into pods, debug containers
}

// Check says what is wrong with a policy.
func (p *Policy) Check() error {
	switch p.Level {
	case "", LevelNone, LevelApplications, LevelAll, LevelNamespaces:
	default:
		return fmt.Errorf("%s is %q: it has to be %s, %s, %s or %s", SettingLevel, p.Level, LevelNone, LevelApplications, LevelNamespaces, LevelAll)
	}
	if p.Level == LevelNamespaces && len(p.Namespaces) == 0 {
		return fmt.Errorf("%s is %s, but --%s names none", SettingLevel, LevelNamespaces, SettingNamespaces)
	}
	for _, pattern := range p.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("%s has %q, which is not a pattern", SettingNamespaces, pattern)
		}
	}
	switch p.Secrets {
	case "", SecretsMasked, SecretsPlain:
		return nil
	}
	return fmt.Errorf("%s is %q: it has to be %s or %s", SettingSecrets, p.Secrets, SecretsMasked, SecretsPlain)
}

// Applications knows what belongs to the Applications of this cluster. It is asked for every request and must not wait.
// Index is one.
type Applications interface {
	// OwnerOf names the Application whose resource tree has an object. Objects without a namespace have an empty one.
	OwnerOf(group, kind, namespace, name string) (app string, ok bool)
	// OwnerOfSubject names the Application that has an object which is known only in part, as events know it.
	OwnerOfSubject(s Subject) (app string, ok bool)
	// HasNamespace names an Application that has objects in a namespace.
	HasNamespace(namespace string) (app string, ok bool)
}

// class is the kind of access that a request is, which the switches are about.
type class int

const (
	classRead class = iota
	classWrite
	classCreate
	classLogs
	classExec
	classToken // hands out credentials
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

// isSelfReview tells the question "what may I do here", which is written as a creation.
func (q *Request) isSelfReview() bool {
	switch q.Resource {
	case "selfsubjectaccessreviews", "selfsubjectrulesreviews":
		return q.Group == "authorization.k8s.io" && q.Verb == verbCreate
	case "selfsubjectreviews":
		return q.Group == "authentication.k8s.io" && q.Verb == verbCreate
	}
	return false
}

// switchedOff names the setting that forbids a class of access.
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

// inNamespaces tells that a request stays within the namespaces that the policy opens. The Namespace itself may be read.
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

// forbidden is a refusal that says which setting decides.
func forbidden(q *Request, setting, why string) *Status {
	s := refusal(http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: %s (the agent's setting %s decides)", q, why, setting))
	s.Details = &Details{Name: q.Name, Group: q.Group, Kind: q.Resource}
	s.setting = setting
	return s
}

// String tells a request in the words of Kubernetes' own refusals.
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
