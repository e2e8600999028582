package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

const (
	droppedField = "spec.syncPolicy.automated.enabled"
	dropped      = "AgentFieldsDroppedWarning"
	aliasMark    = "argocd-agent.argoproj-labs.io/alias"
)

// A cluster with an older Argo CD does not store every field. The hub reports the dropped field, and the field arrives
// after the upgrade of the CRD without any action.
func TestDroppedField_IsReportedAndArrivesAfterCRDUpgrade(t *testing.T) {
	w := shared(t)
	for _, c := range []struct {
		name           string
		replica        *clusterClient
		owned, replied object
		shown          object
		destination    string
	}{
		{"managed", w.managed().spoke, w.hub.app("managed", "dropped"), w.managed().spoke.app(lab.ArgoCDNamespace, "dropped"),
			w.hub.app("managed", "dropped"), "managed"},
		{"autonomous", w.hub, w.autonomous().spoke.app(lab.ArgoCDNamespace, "dropped"), w.hub.app("autonomous", "dropped"),
			w.hub.app("autonomous", "dropped"), "in-cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			crd := c.replica.object(unstructuredResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "applications.argoproj.io")
			upgrade := downgrade(t, crd, c.replica)
			spec := w.plain(c.destination, "dropped")
			spec.automated = false
			content := spec.object()
			set(&unstructured.Unstructured{Object: content}, "spec.syncPolicy.automated", map[string]any{"enabled": false, "prune": true})
			c.owned.create(t, content)
			c.replied.becomes(t, field(droppedField, ""), field("spec.syncPolicy.automated.prune", "true"), func(u *unstructured.Unstructured) error {
				definition := crd.get(t)
				version := fmt.Sprintf("%s/%d", definition.GetUID(), definition.GetGeneration())
				if mark := u.GetAnnotations()[aliasMark]; !strings.Contains(mark, version) || !strings.Contains(mark, droppedField) {
					return fmt.Errorf("the mark is %q, without %s and %s", mark, version, droppedField)
				}
				return nil
			})
			c.shown.becomes(t, shows(dropped, droppedField))
			c.owned.is(t, field(droppedField, "false"))

			w.managed().restart(t)
			w.autonomous().restart(t)
			w.connected(t)
			c.shown.is(t, shows(dropped, droppedField))

			upgrade()
			c.replied.becomes(t, field(droppedField, "false"))
			c.shown.becomes(t, showsNo(dropped))
		})
	}
}

// An AppProject verifies sources with a field that the workload cluster does not store. Nothing runs there under a project
// that verifies nothing.
func TestDroppedField_VerificationOfSourcesIsRefused(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	crd := spoke.object(unstructuredResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "appprojects.argoproj.io")
	keys := []any{map[string]any{"keyID": "0123456789ABCDEF"}}
	upgrade := withoutField(t, crd, "", "signatureKeys", spoke.project("probe"), map[string]any{"signatureKeys": keys})
	content := projectOf()
	set(&unstructured.Unstructured{Object: content}, "spec.signatureKeys", keys)
	w.hub.project("verified").create(t, content)
	spec := w.plain("managed", "verified")
	spec.project, spec.automated = "verified", false
	app := w.hub.app("managed", "verified")
	app.create(t, spec.object())
	app.becomes(t, shows("AgentError", "spec.signatureKeys"))
	spoke.project("verified").isAbsent(t)
	spoke.app(lab.ArgoCDNamespace, "verified").isAbsent(t)

	upgrade()
	spoke.project("verified").becomes(t, func(u *unstructured.Unstructured) error {
		if stored, _, _ := unstructured.NestedSlice(u.Object, "spec", "signatureKeys"); len(stored) != 1 {
			return fmt.Errorf("it has the keys %v", stored)
		}
		return nil
	})
	spoke.app(lab.ArgoCDNamespace, "verified").becomes(t)
	app.becomes(t, showsNo("AgentError"), showsNo(dropped))
}

// downgrade removes the field from the CRD of a cluster, and returns a function that restores it.
func downgrade(t *testing.T, crd object, cluster *clusterClient) (upgrade func()) {
	t.Helper()
	spec := simple("in-cluster")["spec"].(map[string]any)
	spec["syncPolicy"] = map[string]any{"automated": map[string]any{"enabled": false}}
	return withoutField(t, crd, "syncPolicy.automated", "enabled", cluster.app(lab.ArgoCDNamespace, "probe"), spec)
}

// withoutField removes a field of a spec from a CRD, and returns a function that restores it. The probe with that spec
// shows when the API server has the older schema.
func withoutField(t *testing.T, crd object, parent, name string, probe object, spec map[string]any) (upgrade func()) {
	t.Helper()
	path := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	full := []string{"spec"}
	for _, part := range strings.FieldsFunc(parent, func(c rune) bool { return c == '.' }) {
		path, full = append(path, part, "properties"), append(full, part)
	}
	full = append(full, name)
	change := func(f func(properties map[string]any)) {
		crd.edit(t, func(u *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			version := versions[0].(map[string]any)
			properties, _, err := unstructured.NestedMap(version, path...)
			if err != nil {
				t.Fatal(err)
			}
			f(properties)
			if err := unstructured.SetNestedMap(version, properties, path...); err != nil {
				t.Fatal(err)
			}
			set(u, "spec.versions", versions)
		})
	}
	var schema any
	change(func(properties map[string]any) {
		if schema = properties[name]; schema == nil {
			t.Fatal("this Argo CD does not have the field")
		}
		delete(properties, name)
	})
	upgrade = func() { change(func(properties map[string]any) { properties[name] = schema }) }
	t.Cleanup(upgrade)
	await(t, "the API server to serve the older schema", func() error {
		content := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "spec": spec}
		if crd.name == "appprojects.argoproj.io" {
			content["kind"] = "AppProject"
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetName(probe.name)
		u.SetNamespace(probe.namespace)
		ctx, cancel := call()
		defer cancel()
		stored, err := probe.in().Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if v, found, _ := unstructured.NestedFieldNoCopy(stored.Object, full...); found {
			return fmt.Errorf("it still stores %v", v)
		}
		return nil
	})
	return upgrade
}
