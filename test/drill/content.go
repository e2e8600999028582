package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// This file has what two objects must have in common.

// ownPrefixes are prefixes of annotations and labels that Argo CD or argocd-agent keep for themselves on each side.
var ownPrefixes = []string{"argocd-agent.argoproj-labs.io/", "argocd.argoproj.io/source-uid", "argocd.argoproj.io/principal-uid",
	"argocd.argoproj.io/refresh", "notice.argocd.argoproj.io/", "kubectl.kubernetes.io/"}

// ofUsers returns the labels or annotations that belong to users.
func ofUsers(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	})
	return kept
}

// metadataOf returns the metadata that owner and replica must have in common.
func metadataOf(u *unstructured.Unstructured) map[string]any {
	return map[string]any{"labels": ofUsers(u.GetLabels()), "annotations": ofUsers(u.GetAnnotations())}
}

// standbyContent returns what an active hub and its standby must have in common: everything but the identity of the object.
func standbyContent(u *unstructured.Unstructured) map[string]any {
	content := maps.Clone(u.Object)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, key)
	}
	annotations := u.GetAnnotations()
	for key := range annotations {
		if !slices.Contains(ownOfHub, key) {
			content["annotation "+key] = annotations[key]
		}
	}
	for key, text := range u.GetLabels() {
		content["label "+key] = text
	}
	content["finalizers"] = slices.Sorted(slices.Values(u.GetFinalizers()))
	content["deleting"] = u.GetDeletionTimestamp() != nil
	if u.GetKind() == "Agent" {
		delete(content, "status") // of the sessions of each hub
	}
	return content
}

// ownOfHub are annotations that a hub does not share with its standby, or that only the standby has: the UID and the hub of the
// original object.
var ownOfHub = []string{"argocd-agent.argoproj-labs.io/standby", confirmAnnotation, "argocd.argoproj.io/source-uid", "argocd.argoproj.io/principal-uid"}

// firstDifference names the first member in which two contents differ, with both values, or returns "".
func firstDifference(a, b map[string]any) string {
	all := without(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(a[key], b[key]) && (!isEmpty(a[key]) || !isEmpty(b[key])) {
			return fmt.Sprintf("%s is %v and %v", key, a[key], b[key])
		}
	}
	return ""
}

// isEmpty reports whether a member is missing or has nothing.
func isEmpty(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return (r.Kind() == reflect.Map || r.Kind() == reflect.Slice) && r.Len() == 0
}

// without returns a copy of a map, which may be nil, without some members.
func without(m map[string]any, keys ...string) map[string]any {
	kept := map[string]any{}
	maps.Copy(kept, m)
	for _, key := range keys {
		delete(kept, key)
	}
	return kept
}

func text(u *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(u.Object, path...)
	return value
}

func part(u *unstructured.Unstructured, path ...string) map[string]any {
	value, _, _ := unstructured.NestedMap(u.Object, path...)
	return value
}
