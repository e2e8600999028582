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

// downgrade removes the field from the CRD of a cluster, and returns a function that restores it.
func downgrade(t *testing.T, crd object, cluster *clusterClient) (upgrade func()) {
	t.Helper()
	path := "schema.openAPIV3Schema.properties.spec.properties.syncPolicy.properties.automated.properties"
	change := func(f func(properties map[string]any)) {
		crd.edit(t, func(u *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			version := versions[0].(map[string]any)
			properties, _, err := unstructured.NestedMap(version, strings.Split(path, ".")...)
			if err != nil {
				t.Fatal(err)
			}
			f(properties)
			if err := unstructured.SetNestedMap(version, properties, strings.Split(path, ".")...); err != nil {
				t.Fatal(err)
			}
			set(u, "spec.versions", versions)
		})
	}
	var schema any
	change(func(properties map[string]any) {
		if schema = properties["enabled"]; schema == nil {
			t.Fatal("this Argo CD does not have the field")
		}
		delete(properties, "enabled")
	})
	upgrade = func() { change(func(properties map[string]any) { properties["enabled"] = schema }) }
	t.Cleanup(upgrade)
	probe := cluster.app(lab.ArgoCDNamespace, "probe")
	await(t, "the API server to serve the older schema", func() error {
		u := &unstructured.Unstructured{Object: simple("in-cluster")}
		u.SetName(probe.name)
		u.SetNamespace(probe.namespace)
		set(u, "spec.syncPolicy.automated", map[string]any{"enabled": false})
		ctx, cancel := call()
		defer cancel()
		stored, err := probe.in().Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		return field(droppedField, "")(stored)
	})
	return upgrade
}
