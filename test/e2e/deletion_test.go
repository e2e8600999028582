package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

func TestCascade_KeepsUnrelatedApplication(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	const name = "unrelated"
	local, hubApp := agent.spoke.app(lab.ArgoCDNamespace, name), w.hub.app("managed", name)
	workload := agent.spoke.object(deployments, name, "guestbook")
	spec := w.plain("in-cluster", name)
	spec.cascade = true
	local.create(t, spec.object())
	local.becomes(t, synced, healthyApp)
	before := workload.is(t)

	agent.kill(t)
	spec = w.plain("managed", name)
	spec.cascade = true
	hubApp.create(t, spec.object())
	hubApp.delete(t)
	agent.start(t)

	hubApp.goes(t)
	local.is(t, synced, annotation(sourceUID, ""))
	if after := workload.is(t); after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil {
		t.Errorf("the workload of the unrelated Application was deleted")
	}
}

func TestDeleteHooks_RunOnlyIfUserDeletes(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	hooked := func(u *unstructured.Unstructured) error {
		if !slices.ContainsFunc(u.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, "post-delete-finalizer.argocd.argoproj.io") }) {
			return fmt.Errorf("it has no finalizer of a PostDelete hook: %v", u.GetFinalizers())
		}
		return nil
	}
	tests := []struct {
		name    string
		cascade bool
		hook    bool // runs
	}{
		{"hook-ignored", true, false},
		{"hook-deleted", false, true},
		{"hook-cascade", true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hubApp, replica := w.hub.app("managed", test.name), spoke.app(lab.ArgoCDNamespace, test.name)
			deployed := spoke.object(configMaps, test.name, "kept")
			ran := spoke.object(configMaps, test.name, "post-delete-ran")
			hubApp.create(t, appSpec{repo: w.RepoURL("hooks"), path: "delete", destination: "managed", namespace: test.name,
				automated: true, cascade: test.cascade}.object())
			hubApp.becomes(t, synced)
			replica.becomes(t, synced, hooked)
			deployed.is(t)

			if test.hook {
				hubApp.delete(t)
			} else {
				hubApp.edit(t, func(u *unstructured.Unstructured) { setLabel(u, ignore, "true") })
			}
			replica.goes(t)
			if test.hook {
				ran.becomes(t)
			} else {
				ran.isAbsent(t)
			}
			if test.cascade && test.hook {
				deployed.goes(t)
				hubApp.goes(t)
			} else {
				deployed.is(t)
			}
		})
	}
}
