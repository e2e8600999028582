package kind

import "github.com/argocd-agent/argocd-agent/internal/rawjson"

// IsReduced reports whether an object lacks its content: see Reduce.
func (o *Object) IsReduced() bool { return o.reduced }

// Reduce returns an Application without its content. What decides where it belongs stays: metadata, project and
// destination. A principal replica keeps Applications in this form while another replica has the session of their
// agent.
//
// A reduced object cannot be edited: every edit returns an error or the object itself. It must not be published, and it
// must not be compared with anything but its own identity. Its JSON does not have its name, UID and revision.
func Reduce(o *Object) *Object {
	if o.reduced {
		return o
	}
	var meta, spec rawjson.Object
	for _, m := range members(o.metadata) {
		switch m.Key {
		case "deletionTimestamp", "labels", "finalizers":
			meta.Set(m.Key, m.Value)
		case "annotations":
			meta.Set(m.Key, reducedAnnotations(m.Value))
		}
	}
	for _, key := range []string{"project", "destination"} {
		if value := o.Get("spec", key); value != nil {
			spec.Set(key, value)
		}
	}
	top := rawjson.Object{{Key: "metadata", Value: meta.Bytes()}, {Key: "spec", Value: spec.Bytes()}}
	out := *o // with its identity
	out.raw, out.reduced = top.Bytes(), true
	out.metadata = rawjson.Get(out.raw, "metadata")
	out.labels, out.annotations = rawjson.Get(out.metadata, "labels"), rawjson.Get(out.metadata, "annotations")
	return &out
}

// reducedAnnotations returns annotations without two that can be large and that decide nothing.
func reducedAnnotations(b []byte) []byte {
	annotations := members(b)
	annotations.Remove("kubectl.kubernetes.io/last-applied-configuration")
	annotations.Remove("notified.notifications.argoproj.io")
	return annotations.Bytes()
}
