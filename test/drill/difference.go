package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// difference returns what differs between an Application and its replica, or what still runs.
func difference(a *app, owner, replica *unstructured.Unstructured) string {
	switch {
	case owner == nil && replica == nil:
		return ""
	case owner == nil:
		return "only the replica exists"
	case replica == nil:
		return "there is no replica"
	case owner.GetDeletionTimestamp() != nil || replica.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	}
	if d := firstDifference(replicaSpec(a.mode, part(owner, "spec")), part(replica, "spec")); d != "" {
		return "on owner and replica, spec." + d
	}
	if d := firstDifference(metadataOf(owner), metadataOf(replica)); d != "" {
		return "on owner and replica, " + d
	}
	if want, got := replicaFinalizers(a.mode, owner), replica.GetFinalizers(); !slices.Equal(want, got) {
		return fmt.Sprintf("the replica has the finalizers %v instead of %v", got, want)
	}
	for _, u := range []*unstructured.Unstructured{owner, replica} {
		if u.Object["operation"] != nil || isRunning(u) {
			return "an operation is not finished"
		}
	}
	if before, after := commandOf(owner), commandOf(replica); before != after {
		return fmt.Sprintf("the last command is %s on the owner and %s on the replica", before, after)
	}
	if before, after := phaseOf(owner), phaseOf(replica); before != after {
		return fmt.Sprintf("the last command is %q on the owner and %q on the replica", before, after)
	}
	if a.last != "" && !a.doubtful && commandOf(owner) != a.last {
		return fmt.Sprintf("the last command is %s instead of %s", commandOf(owner), a.last)
	}
	if d := firstDifference(statusOf(owner), statusOf(replica)); d != "" {
		return "on owner and replica, status." + d
	}
	return ""
}

// replicaSpec returns the spec that a replica must have. Mapping changes destination and, for an autonomous agent, project.
func replicaSpec(mode string, spec map[string]any) map[string]any {
	spec = without(spec)
	old, _ := spec["destination"].(map[string]any)
	destination := without(old, "server")
	destination["name"] = "in-cluster"
	if mode == autonomous {
		destination["name"] = autonomous
		spec["project"] = fmt.Sprintf("%s-%s", autonomous, spec["project"])
	}
	spec["destination"] = destination
	return spec
}

// replicaFinalizers returns the finalizers of a replica. Only those that delete resources come from the owner, and nothing on
// a hub acts on them.
func replicaFinalizers(mode string, owner *unstructured.Unstructured) []string {
	if mode == autonomous {
		return nil
	}
	return slices.DeleteFunc(owner.GetFinalizers(), func(f string) bool { return f != cascade })
}

// statusOf returns the status without times, the last operation and conditions: the hub adds its own ones.
func statusOf(u *unstructured.Unstructured) map[string]any {
	return without(part(u, "status"), "reconciledAt", "observedAt", "operationState", "conditions")
}

func phaseOf(u *unstructured.Unstructured) string {
	return text(u, "status", "operationState", "phase")
}

func isRunning(u *unstructured.Unstructured) bool {
	return slices.Contains([]string{"Running", "Terminating"}, phaseOf(u))
}

// commandOf returns the number of the last sync that ran.
func commandOf(u *unstructured.Unstructured) string {
	info, _, _ := unstructured.NestedSlice(u.Object, "status", "operationState", "operation", "info")
	for _, one := range info {
		if pair, _ := one.(map[string]any); pair["name"] == "drill" {
			value, _ := pair["value"].(string)
			return value
		}
	}
	return ""
}

// standbyResources are what an active hub and its standby must have in common.
var standbyResources = []struct {
	resource  resource
	namespace string // if empty, all
	selector  string
}{
	{applications, "", "drill=true"},
	{projects, lab.ArgoCDNamespace, ""},
	{secrets, lab.ArgoCDNamespace, "argocd.argoproj.io/secret-type"},
	{agents, lab.ArgoCDNamespace, ""},
}

// standbyDifferences returns what differs between the objects of the active hub and its standby, by namespace and name.
func standbyDifferences(active, standby map[string]*unstructured.Unstructured) (found []string) {
	for name := range standby {
		if active[name] == nil {
			found = append(found, "only the standby has "+name)
		}
	}
	for name, u := range active {
		replica := standby[name]
		if replica == nil {
			found = append(found, "the standby lacks "+name)
			continue
		}
		if d := firstDifference(standbyContent(u), standbyContent(replica)); d != "" {
			kind := strings.ToLower(u.GetKind())
			found = append(found, fmt.Sprintf("%s %s on the active hub and the standby: %s", kind, name, d))
		}
	}
	slices.Sort(found)
	return found
}
