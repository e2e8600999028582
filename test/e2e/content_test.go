package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// condition returns why an object does not meet it, or nil.
type condition func(*unstructured.Unstructured) error

// appSpec describes an Application of a test.
type appSpec struct {
	repo        string // URL
	path        string // in the repository. If empty, its root
	revision    string // If empty, main
	project     string // If empty, default
	destination string // name of the cluster
	namespace   string // namespace of the workloads
	automated   bool
	cascade     bool // with the resources finalizer
	labels      map[string]string
	annotations map[string]string
}

func (a appSpec) object() map[string]any {
	orElse := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	sync := map[string]any{"syncOptions": []any{"CreateNamespace=true"}}
	if a.automated {
		sync["automated"] = map[string]any{}
	}
	meta := map[string]any{}
	if a.cascade {
		meta["finalizers"] = []any{cascade}
	}
	u := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": meta,
		"spec": map[string]any{
			"project":     orElse(a.project, "default"),
			"source":      map[string]any{"repoURL": a.repo, "path": orElse(a.path, "."), "targetRevision": orElse(a.revision, "main")},
			"destination": map[string]any{"name": a.destination, "namespace": a.namespace},
			"syncPolicy":  sync,
		}}}
	u.SetLabels(a.labels)
	u.SetAnnotations(a.annotations)
	return u.Object
}

const (
	cascade   = "resources-finalizer.argocd.argoproj.io"
	ignore    = "argocd-agent.argoproj-labs.io/ignore-sync"
	adoption  = "argocd.argoproj.io/adoption-policy"
	sourceUID = "argocd.argoproj.io/source-uid"
	secretTyp = "argocd.argoproj.io/secret-type"
)

// projectOf returns an AppProject for the given clusters. If there are none, for all clusters.
func projectOf(clusters ...string) map[string]any {
	destinations := []any{}
	for _, cluster := range clusters {
		destinations = append(destinations, map[string]any{"name": cluster, "namespace": "*", "server": ""})
	}
	if len(clusters) == 0 {
		destinations = append(destinations, map[string]any{"name": "*", "namespace": "*", "server": "*"})
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{},
		"spec": map[string]any{
			"description": "of a test", "sourceRepos": []any{"*"}, "destinations": destinations, "sourceNamespaces": []any{"*"},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		}}
}

// secretOf returns a repository or repo-creds Secret of Argo CD.
func secretOf(kind string, data map[string]string) map[string]any {
	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": encoded,
		"metadata": map[string]any{"labels": map[string]any{secretTyp: kind}}}
}

// field requires a value at a path such as spec.source.path. If the value is empty, the path must not exist.
func field(path, value string) condition {
	return func(u *unstructured.Unstructured) error {
		if found := at(u, path); found != value {
			return fmt.Errorf("%s is %q, not %q", path, found, value)
		}
		return nil
	}
}

// at returns the text at a path. For names with dots, use annotation or label.
func at(u *unstructured.Unstructured, path string) string {
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
	if err != nil || !found || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func label(key, value string) condition {
	return func(u *unstructured.Unstructured) error {
		if found := u.GetLabels()[key]; found != value {
			return fmt.Errorf("label %s is %q, not %q", key, found, value)
		}
		return nil
	}
}

func annotation(key, value string) condition {
	return func(u *unstructured.Unstructured) error {
		if found := u.GetAnnotations()[key]; found != value {
			return fmt.Errorf("annotation %s is %q, not %q", key, found, value)
		}
		return nil
	}
}

// synced and healthyApp check the status of an Application.
func synced(u *unstructured.Unstructured) error { return field("status.sync.status", "Synced")(u) }
func outOfSync(u *unstructured.Unstructured) error {
	return field("status.sync.status", "OutOfSync")(u)
}
func healthyApp(u *unstructured.Unstructured) error {
	return field("status.health.status", "Healthy")(u)
}

// noOperation requires that no operation is pending or running.
func noOperation(u *unstructured.Unstructured) error {
	if op, found, _ := unstructured.NestedMap(u.Object, "operation"); found && len(op) > 0 {
		return errors.New("an operation is pending or running")
	}
	return nil
}

// history requires a number of entries in the deployment history, one for each sync.
func history(n int) condition {
	return func(u *unstructured.Unstructured) error {
		if found := historyOf(u); found != n {
			return fmt.Errorf("%d syncs in the history, not %d", found, n)
		}
		return nil
	}
}

func historyOf(u *unstructured.Unstructured) int {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "history")
	return len(list)
}

// shows requires a condition with a type and a text in its message.
func shows(conditionType, text string) condition {
	return func(u *unstructured.Unstructured) error {
		message, found := conditionOf(u, conditionType)
		if !found || !strings.Contains(message, text) {
			return fmt.Errorf("condition %s is %q (there: %t), without %q", conditionType, message, found, text)
		}
		return nil
	}
}

// showsNo requires that there is no such condition.
func showsNo(conditionType string) condition {
	return func(u *unstructured.Unstructured) error {
		if message, found := conditionOf(u, conditionType); found {
			return fmt.Errorf("condition %s: %s", conditionType, message)
		}
		return nil
	}
}

func conditionOf(u *unstructured.Unstructured, conditionType string) (string, bool) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range list {
		if one, ok := entry.(map[string]any); ok && one["type"] == conditionType {
			return fmt.Sprint(one["message"]), true
		}
	}
	return "", false
}

// set writes a value at a path.
func set(u *unstructured.Unstructured, path string, value any) {
	if err := unstructured.SetNestedField(u.Object, value, strings.Split(path, ".")...); err != nil {
		panic(err)
	}
}

func setLabel(u *unstructured.Unstructured, key, value string) {
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	u.SetLabels(labels)
}

func setAnnotation(u *unstructured.Unstructured, key, value string) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	u.SetAnnotations(annotations)
}

// differs requires another UID.
func differs(u, before *unstructured.Unstructured) error {
	if u.GetUID() == before.GetUID() {
		return errors.New("it is still the same object")
	}
	return nil
}
