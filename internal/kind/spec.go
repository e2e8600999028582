package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

const (
	defaultProject  = "default"
	inClusterName   = "in-cluster"
	inClusterServer = "https://kubernetes.default.svc"
)

// normalizeSpec converts an Application's spec to the form in which Argo CD's controller stores it, so that its
// normalization is no difference. A missing project is the default one, and an empty syncPolicy, helm, kustomize or
// directory is none. `automated: {}` means auto-sync and stays. The controller leaves `sources` as they are (an empty
// helm there chooses the type), and so do we.
func normalizeSpec(spec *rawjson.Object) {
	if rawjson.Text(spec.Get("project")) == "" {
		spec.Set("project", rawjson.Quote(defaultProject))
	}
	if v := spec.Get("syncPolicy"); v != nil && isZero(v, nil, "automated", "retry", "managedNamespaceMetadata") {
		spec.Remove("syncPolicy")
	}
	if sources := spec.Get("sources"); isEmpty(sources) {
		if v := spec.Get("source"); !rawjson.IsNull(v) {
			source := members(v)
			normalizeSource(&source)
			spec.Set("source", source.Bytes())
		}
	}
	if v := spec.Get("destination"); !rawjson.IsNull(v) {
		spec.Set("destination", normalizeDestination(members(v)).Bytes())
	}
}

// Fields that ApplicationSourceKustomize.IsZero ignores.
var kustomizeDetails = []string{
	"forceCommonLabels", "forceCommonAnnotations", "commonAnnotationsEnvsubst", "labelWithoutSelector", "labelIncludeTemplates",
}

func normalizeSource(source *rawjson.Object) {
	if v := source.Get("kustomize"); v != nil && isZero(v, kustomizeDetails) {
		source.Remove("kustomize")
	}
	if v := source.Get("helm"); v != nil && isZero(v, nil, "valuesObject") {
		source.Remove("helm")
	}
	v := source.Get("directory")
	if v == nil || !isZero(v, []string{"include", "exclude"}) {
		return
	}
	var kept rawjson.Object
	for _, m := range members(v) {
		if (m.Key == "include" || m.Key == "exclude") && !isEmpty(m.Value) {
			kept = append(kept, m)
		}
	}
	if len(kept) == 0 {
		source.Remove("directory")
		return
	}
	source.Set("directory", kept.Bytes())
}

func normalizeDestination(destination rawjson.Object) rawjson.Object {
	return slices.DeleteFunc(destination, func(m rawjson.Member) bool {
		return (m.Key == "name" || m.Key == "server" || m.Key == "namespace") && isEmpty(m.Value)
	})
}

// isZero reports whether every member of an object is empty, except ignored ones. Members in pointers count if they
// exist.
func isZero(v []byte, ignore []string, pointers ...string) bool {
	if rawjson.IsNull(v) {
		return true
	}
	zero := true
	err := rawjson.Each(v, func(key string, value []byte) bool {
		switch {
		case slices.Contains(ignore, key):
		case slices.Contains(pointers, key):
			zero = rawjson.IsNull(value)
		case len(value) > 0 && value[0] == '{' && key == "jsonnet":
			zero = isZero(value, nil)
		default:
			zero = isEmpty(value)
		}
		return zero
	})
	return err == nil && zero
}

// isEmpty reports whether a value is a zero value in Go.
func isEmpty(v []byte) bool {
	switch string(v) {
	case "", "null", `""`, "false", "0", "[]", "{}":
		return true
	}
	if len(v) > 1 && v[0] == '{' {
		return len(members(v)) == 0
	}
	if len(v) > 1 && v[0] == '[' {
		list, err := rawjson.Elements(v)
		return err == nil && len(list) == 0
	}
	return false
}
