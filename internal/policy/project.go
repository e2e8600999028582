package policy

import (
	"slices"
	"strings"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Project returns an AppProject of the hub, narrowed to what the policy allows. The argument is the object as it would be
// written. If nothing has to be narrowed, it returns the same object.
//
// Patterns are intersected entry by entry. If it cannot be decided whether one pattern contains the other, the entry is
// left out: the result never allows more than both.
func (p *Policy) Project(o *kind.Object) (*kind.Object, error) {
	for _, c := range p.policies {
		if !allows(c.spec.Projects, o.Name()) {
			return nil, c.violation("projects", "AppProject %s is not allowed", o.Name())
		}
		if v := c.rules(o, "AppProject"); v != nil {
			return nil, v
		}
		spec, err := p.narrow(&c, o.Get("spec"))
		if err != nil {
			return nil, c.violation("projects", "AppProject %s cannot be read: %v", o.Name(), err)
		}
		narrowed, err := o.WithSpec(spec)
		if err != nil {
			return nil, c.violation("projects", "AppProject %s cannot be narrowed: %v", o.Name(), err)
		}
		if !kind.Same(o, narrowed) {
			o = narrowed
		}
	}
	return o, nil
}

// Exceeds returns which rule an AppProject of the workload cluster is wider than, or nil. Rules written in CEL do not
// count: they are about objects from the hub.
func (p *Policy) Exceeds(project *kind.Object) error {
	spec := project.Get("spec")
	for _, c := range p.policies {
		if v := p.exceeds(&c, project.Name(), spec); v != nil {
			return v
		}
	}
	return nil
}

func (p *Policy) exceeds(c *compiled, name string, spec []byte) *ViolationError {
	wider := func(rule, what string) *ViolationError {
		return c.violation(rule, "AppProject %s of the workload cluster allows %s", name, what)
	}
	if c.spec.SourceRepos != nil {
		repos, _ := rawjson.Strings(rawjson.Get(spec, "sourceRepos"))
		for _, repo := range repos {
			if !strings.HasPrefix(repo, "!") && !containedIn(c.spec.SourceRepos, repo) {
				return wider("sourceRepos", "repository "+repo)
			}
		}
	}
	list := rawjson.Get(spec, "destinations")
	destinations, err := rawjson.Elements(list)
	if err != nil && !rawjson.IsNull(list) {
		return wider("destinationNamespaces", "destinations that cannot be read")
	}
	protected := p.protected(c, spec)
	for _, d := range destinations {
		ns := rawjson.Text(d, "namespace")
		unchanged := func(allowed, protected []string) bool {
			return slices.Equal(namespaces(ns, allowed, protected), []string{ns})
		}
		switch {
		case !unchanged(c.spec.DestinationNamespaces, nil):
			return wider("destinationNamespaces", "namespace "+ns)
		case !unchanged(nil, protected):
			return wider("protectedNamespaces", "namespace "+ns+", which includes a protected namespace")
		}
	}
	if k, ok := wideKind(spec, "namespaceResourceWhitelist", c.spec.NamespacedKinds, true); ok {
		return wider("namespacedKinds", "kind "+k)
	}
	if k, ok := wideKind(spec, "clusterResourceWhitelist", c.spec.ClusterKinds, false); ok {
		return wider("clusterKinds", "kind "+k)
	}
	return nil
}

// wideKind returns a kind that a project allows and the policy does not.
func wideKind(spec []byte, field string, policy []v1alpha1.GroupKind, absentIsAll bool) (string, bool) {
	if policy == nil {
		return "", false
	}
	for _, k := range projectKinds(rawjson.Get(spec, field), absentIsAll) {
		if k == noKind {
			continue
		}
		if !slices.ContainsFunc(policy, func(b v1alpha1.GroupKind) bool { return contains(b.Group, k.Group) && contains(b.Kind, k.Kind) }) {
			return k.Group + "/" + k.Kind, true
		}
	}
	return "", false
}

// containedIn reports whether everything that a pattern matches is matched by one of the patterns of a list.
func containedIn(list []string, pattern string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return contains(p, pattern) })
}

func (p *Policy) narrow(c *compiled, raw []byte) ([]byte, error) {
	spec, err := rawjson.Split(raw)
	if err != nil {
		return nil, err
	}
	if c.spec.SourceRepos != nil {
		repos, _ := rawjson.Strings(spec.Get("sourceRepos"))
		spec.Set("sourceRepos", rawjson.AppendStrings(nil, intersect(repos, c.spec.SourceRepos)))
	}
	destinations, err := p.destinations(c, spec.Get("destinations"), raw)
	if err != nil {
		return nil, err
	}
	if destinations != nil {
		spec.Set("destinations", destinations)
	}
	// Without a list, Argo CD allows all namespaced kinds and no cluster-scoped kind.
	narrowKinds(&spec, "namespaceResourceWhitelist", c.spec.NamespacedKinds, true)
	narrowKinds(&spec, "clusterResourceWhitelist", c.spec.ClusterKinds, false)
	return spec.Bytes(), nil
}

// destinations returns the narrowed list; nil: it stays as it is.
func (p *Policy) destinations(c *compiled, list, project []byte) ([]byte, error) {
	protected := p.protected(c, project)
	if rawjson.IsNull(list) || c.spec.DestinationNamespaces == nil && len(protected) == 0 {
		return nil, nil
	}
	entries, err := rawjson.Elements(list)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, e := range entries {
		entry, err := rawjson.Split(e)
		if err != nil {
			return nil, err
		}
		for _, ns := range namespaces(rawjson.Text(e, "namespace"), c.spec.DestinationNamespaces, protected) {
			narrowed := slices.Clone(entry)
			narrowed.Set("namespace", rawjson.Quote(ns))
			out = append(out, narrowed.Bytes())
		}
	}
	return rawjson.Join(out), nil
}

// namespaces returns the patterns that an entry's namespace pattern becomes.
func namespaces(pattern string, allowed, protected []string) []string {
	if strings.HasPrefix(pattern, "!") {
		// It denies what it names, which must stay, and permits everything else, which may be too much.
		if allowed == nil && len(protected) == 0 {
			return []string{pattern}
		}
		denied := alternatives(pattern[1:])
		for _, p := range protected {
			if !containedIn(denied, p) {
				denied = append(denied, p)
			}
		}
		if allowed != nil {
			return withoutProtected(allowed, denied)
		}
		return []string{everythingBut(denied)}
	}
	kept := []string{pattern}
	if allowed != nil {
		kept = intersect(kept, allowed)
	}
	return withoutProtected(kept, protected)
}

// withoutProtected leaves out patterns that could match a protected namespace. For one that matches everything there is a
// form that names the exceptions.
func withoutProtected(patterns, protected []string) []string {
	if len(protected) == 0 {
		return patterns
	}
	var out []string
	for _, p := range patterns {
		switch {
		case p == "*":
			out = append(out, everythingBut(protected))
		case !slices.ContainsFunc(protected, func(q string) bool { return mayOverlap(p, q) }):
			out = append(out, p)
		}
	}
	return out
}

// everythingBut is a pattern of an AppProject that denies some namespaces and permits all others.
func everythingBut(patterns []string) string {
	if len(patterns) == 1 {
		return "!" + patterns[0]
	}
	return "!{" + strings.Join(patterns, ",") + "}"
}

// alternatives are the patterns of a pattern such as {a,b}, or the pattern itself.
func alternatives(pattern string) []string {
	inner, ok := strings.CutPrefix(pattern, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !ok || !closed || strings.ContainsAny(inner, `{}[]\`) {
		return []string{pattern}
	}
	return strings.Split(inner, ",")
}

// mayOverlap reports whether a text can match both patterns. It can be true although none does.
func mayOverlap(a, b string) bool {
	switch {
	case isLiteral(a):
		return kind.GlobMatch(b, a)
	case isLiteral(b):
		return kind.GlobMatch(a, b)
	}
	// Two patterns with fixed beginnings that differ have nothing in common, and so for their ends.
	prefixA, suffixA := fixedEnds(a)
	prefixB, suffixB := fixedEnds(b)
	return (strings.HasPrefix(prefixA, prefixB) || strings.HasPrefix(prefixB, prefixA)) &&
		(strings.HasSuffix(suffixA, suffixB) || strings.HasSuffix(suffixB, suffixA))
}

const special = `*?[]{}\,!`

func isLiteral(pattern string) bool { return !strings.ContainsAny(pattern, special) }

// fixedEnds are the literal beginning and the literal end of a pattern.
func fixedEnds(pattern string) (prefix, suffix string) {
	first, last := strings.IndexAny(pattern, special), strings.LastIndexAny(pattern, special)
	if first < 0 {
		return pattern, pattern
	}
	return pattern[:first], pattern[last+1:]
}

// intersect returns patterns that match only what a pattern of both lists matches. Denials of the first list stay.
func intersect(project, policy []string) []string {
	out := []string{}
	add := func(p string) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, a := range project {
		if strings.HasPrefix(a, "!") {
			add(a)
			continue
		}
		for _, b := range policy {
			switch {
			case contains(b, a):
				add(a)
			case contains(a, b):
				add(b)
			}
		}
	}
	return out
}

// contains reports whether everything that inner matches is matched by outer. If that cannot be decided, it is false.
func contains(outer, inner string) bool {
	if outer == inner || outer == "*" || outer == "**" {
		return true
	}
	// A star of inner stands for any text, and only a star of outer can match it in the middle of fixed text.
	return !strings.ContainsAny(inner, special[1:]) && !strings.ContainsAny(outer, special[1:]) && kind.GlobMatch(outer, inner)
}

// narrowKinds intersects one of the lists of kinds that a project allows.
func narrowKinds(spec *rawjson.Object, field string, policy []v1alpha1.GroupKind, absentIsAll bool) {
	if policy == nil {
		return
	}
	var out [][]byte
	for _, a := range projectKinds(spec.Get(field), absentIsAll) {
		for _, b := range policy {
			groups, kinds := intersect([]string{a.Group}, []string{b.Group}), intersect([]string{a.Kind}, []string{b.Kind})
			if len(groups) == 0 || len(kinds) == 0 {
				continue
			}
			entry := rawjson.Object{{Key: "group", Value: rawjson.Quote(groups[0])}, {Key: "kind", Value: rawjson.Quote(kinds[0])}}
			out = append(out, entry.Bytes())
		}
	}
	if len(out) == 0 && absentIsAll {
		// An empty list would allow everything.
		none := rawjson.Object{{Key: "group", Value: rawjson.Quote(noKind.Group)}, {Key: "kind", Value: rawjson.Quote(noKind.Kind)}}
		out = append(out, none.Bytes())
	}
	spec.Set(field, rawjson.Join(out))
}

// noKind does not exist. A list with only this kind allows nothing.
var noKind = v1alpha1.GroupKind{Group: "none", Kind: "None"}

// projectKinds are the kinds of one of the lists of a project.
func projectKinds(list []byte, absentIsAll bool) []v1alpha1.GroupKind {
	var out []v1alpha1.GroupKind
	if !rawjson.IsNull(list) {
		entries, _ := rawjson.Elements(list)
		for _, e := range entries {
			out = append(out, v1alpha1.GroupKind{Group: rawjson.Text(e, "group"), Kind: rawjson.Text(e, "kind")})
		}
	}
	if len(out) == 0 && absentIsAll {
		return []v1alpha1.GroupKind{{Group: "*", Kind: "*"}}
	}
	return out
}
