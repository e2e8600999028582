// Package policy decides what a workload cluster allows its hub to do.
//
// A user of the workload cluster writes AgentPolicies. The agent compiles them into a Policy and asks it before it applies
// anything from the hub. The hub cannot read, write or widen it. Without an AgentPolicy, the defaults of Compile hold.
//
// Policy implements reconcile.SpokePolicy. The package is pure: an answer depends on the policy, the object and the time that the caller passes.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Env is what the policies of an agent depend on.
type Env struct {
	Mode           kind.Mode
	ArgoNamespace  string // of Argo CD on the workload cluster
	AgentNamespace string // of the agent
}

// ViolationError says which rule of a policy forbids something, and why.
type ViolationError struct {
	Policy string // name of the AgentPolicy; empty: a default
	Rule   string // field or name of the rule
	Reason string
}

func (v *ViolationError) Error() string {
	if v.Policy == "" {
		return fmt.Sprintf("the workload cluster's default policy (%s) forbids it: %s", v.Rule, v.Reason)
	}
	return fmt.Sprintf("AgentPolicy %s (%s) of the workload cluster forbids it: %s", v.Policy, v.Rule, v.Reason)
}

// Policy is the conjunction of all AgentPolicies of an agent.
type Policy struct {
	env      Env
	policies []compiled
}

// compiled is one AgentPolicy.
type compiled struct {
	name string
	spec v1alpha1.PolicySpec
	ops  operations
	cel  []celRule
}

// Compile checks AgentPolicies and returns what they allow together. An error names the AgentPolicy and the field. The
// caller must not fall back to a wider policy after an error.
func Compile(env Env, list []v1alpha1.AgentPolicy) (*Policy, error) {
	p := &Policy{env: env}
	if len(list) == 0 {
		list = []v1alpha1.AgentPolicy{{}}
	}
	for _, ap := range list {
		c := compiled{name: ap.Name, spec: ap.Spec}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("AgentPolicy %s: %w", ap.Name, err)
		}
		c.ops = operationsOf(ap.Spec.Operations, env.Mode)
		rules, err := compileRules(ap.Spec.Rules)
		if err != nil {
			return nil, fmt.Errorf("AgentPolicy %s: %w", ap.Name, err)
		}
		c.cel = rules
		p.policies = append(p.policies, c)
	}
	return p, nil
}

func (c *compiled) check() error {
	for field, patterns := range map[string][]string{
		"projects": c.spec.Projects, "sourceRepos": c.spec.SourceRepos, "destinationNamespaces": c.spec.DestinationNamespaces,
		"protectedNamespaces": c.spec.ProtectedNamespaces, "upgrade.versions": c.versions(),
	} {
		for _, pattern := range patterns {
			if !kind.ValidGlob(pattern) || strings.HasPrefix(pattern, "!") {
				return fmt.Errorf("spec.%s: %q is not a valid pattern", field, pattern)
			}
		}
	}
	for _, k := range c.spec.ArgoCDKinds {
		if !slices.Contains([]string{"Application", "ApplicationSet", "AppProject"}, k) {
			return fmt.Errorf("spec.argoCDKinds: %q is none of Application, ApplicationSet, AppProject", k)
		}
	}
	if a := c.spec.Adoption; a != "" && a != "always" && a != "never" {
		return fmt.Errorf("spec.adoption: %q is neither always nor never", a)
	}
	if d := c.spec.Deletions; d != nil && (d.Max < 0 || d.Window.Duration < 0) {
		return fmt.Errorf("spec.deletions: max and window must not be negative")
	}
	if o := c.spec.Operations; o != nil {
		for _, part := range o.Allow {
			if !slices.Contains(allParts, part) {
				return fmt.Errorf("spec.operations.allow: %q is none of %s", part, strings.Join(allParts, ", "))
			}
		}
	}
	return nil
}

func (c *compiled) violation(rule, format string, args ...any) *ViolationError {
	return &ViolationError{Policy: c.name, Rule: rule, Reason: fmt.Sprintf(format, args...)}
}

// Frozen returns why no change of the hub is applied at a time; nil: changes are applied.
func (p *Policy) Frozen(now time.Time) *ViolationError {
	for _, c := range p.policies {
		if f := c.spec.Freeze; f != nil && now.Before(f.Until.Time) {
			reason := "changes are frozen until " + f.Until.UTC().Format(time.RFC3339)
			if f.Reason != "" {
				reason += ": " + f.Reason
			}
			return c.violation("freeze", "%s", reason)
		}
	}
	return nil
}

// ThawsAt returns when the last freeze ends that has not ended; zero: there is none.
func (p *Policy) ThawsAt(now time.Time) time.Time {
	var at time.Time
	for _, c := range p.policies {
		if f := c.spec.Freeze; f != nil && now.Before(f.Until.Time) && f.Until.After(at) {
			at = f.Until.Time
		}
	}
	return at
}

// NeverAdopts reports whether objects that the agent did not create stay as they are.
func (p *Policy) NeverAdopts() bool {
	return slices.ContainsFunc(p.policies, func(c compiled) bool { return c.spec.Adoption == "never" })
}

// LiveAccess returns the narrowest live access of all policies. A policy without the field does not limit.
func (p *Policy) LiveAccess() v1alpha1.LiveAccess {
	out := v1alpha1.LiveAccess{Read: true, Write: true, Exec: true, Secrets: true}
	for _, c := range p.policies {
		if l := c.spec.LiveAccess; l != nil {
			out.Read, out.Write = out.Read && l.Read, out.Write && l.Write
			out.Exec, out.Secrets = out.Exec && l.Exec, out.Secrets && l.Secrets
		}
	}
	return out
}

// Application returns why an Application of the hub must not be applied as it is; nil: it can be. The argument is the
// object as it would be written.
func (p *Policy) Application(o *kind.Object) error {
	if v := p.application(o); v != nil {
		return v
	}
	return nil
}

func (p *Policy) application(o *kind.Object) *ViolationError {
	spec := o.Get("spec")
	namespace := rawjson.Text(spec, "destination", "namespace")
	for _, c := range p.policies {
		if project := kind.ProjectOf(o); !allows(c.spec.Projects, project) {
			return c.violation("projects", "AppProject %s is not allowed", project)
		}
		for _, repo := range sourceRepos(spec) {
			if !allows(c.spec.SourceRepos, repo) {
				return c.violation("sourceRepos", "repository %s is not allowed", repo)
			}
		}
		if namespace != "" {
			if !allows(c.spec.DestinationNamespaces, namespace) {
				return c.violation("destinationNamespaces", "namespace %s is not allowed", namespace)
			}
			if p.protects(&c, namespace, nil) {
				return c.violation("protectedNamespaces", "namespace %s is protected", namespace)
			}
		}
		if v := c.rules(o, "Application"); v != nil {
			return v
		}
	}
	return nil
}

// protects reports whether nothing from the hub can be deployed to a namespace. Kinds of Argo CD can be allowed in its
// own namespace, for projects that allow nothing else. For an Application, whose project is not known here, pass nil: its
// project decides.
func (p *Policy) protects(c *compiled, namespace string, project []byte) bool {
	if namespace == p.env.ArgoNamespace && len(c.spec.ArgoCDKinds) > 0 && (project == nil || onlyKinds(project, c.spec.ArgoCDKinds)) {
		return false
	}
	return namespace == p.env.ArgoNamespace || namespace == p.env.AgentNamespace ||
		c.spec.ProtectedNamespaces != nil && allows(c.spec.ProtectedNamespaces, namespace)
}

// onlyKinds reports whether a project allows no namespaced kind except some of Argo CD's.
func onlyKinds(project []byte, kinds []string) bool {
	entries, err := rawjson.Elements(rawjson.Get(project, "namespaceResourceWhitelist"))
	return err == nil && len(entries) > 0 && !slices.ContainsFunc(entries, func(e []byte) bool {
		return rawjson.Text(e, "group") != kind.Applications.Group || !slices.Contains(kinds, rawjson.Text(e, "kind"))
	})
}

// protected are the namespaces, as patterns, to which a project cannot deploy.
func (p *Policy) protected(c *compiled, project []byte) []string {
	out := slices.Clone(c.spec.ProtectedNamespaces)
	for _, ns := range []string{p.env.ArgoNamespace, p.env.AgentNamespace} {
		if p.protects(c, ns, project) && !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// DeletionBudget returns how many Applications the hub can delete in which time. Of several policies the smallest limit
// counts, and the longest time.
func (p *Policy) DeletionBudget() (limit int, window engine.Time, limited bool) {
	for _, c := range p.policies {
		d := c.spec.Deletions
		if d == nil {
			continue
		}
		if !limited || d.Max < limit {
			limit = d.Max
		}
		window, limited = max(window, engine.Time(cmp.Or(d.Window.Duration, time.Hour).Milliseconds())), true
	}
	return limit, window, limited
}

// allows reports whether a text matches one of the patterns. A list that is not set allows everything.
func allows(patterns []string, text string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool { return kind.GlobMatch(p, text) })
}

// sourceRepos are the repositories that an Application reads.
func sourceRepos(spec []byte) []string {
	var repos []string
	add := func(source []byte) {
		if repo := rawjson.Text(source, "repoURL"); repo != "" {
			repos = append(repos, repo)
		}
	}
	add(rawjson.Get(spec, "source"))
	add(rawjson.Get(spec, "sourceHydrator", "drySource"))
	add(rawjson.Get(spec, "sourceHydrator", "syncSource"))
	list, _ := rawjson.Elements(rawjson.Get(spec, "sources"))
	for _, source := range list {
		add(source)
	}
	return repos
}
