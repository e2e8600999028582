package sim

import (
	"encoding/base64"
	"iter"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what users create.

func application(namespace, name, destination, revision string) tree {
	return tree{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": tree{"namespace": namespace, "name": name},
		"spec": tree{
			"project":     "default",
			"source":      tree{"repoURL": "https://git.example.com/apps", "path": "guestbook", "targetRevision": revision},
			"destination": tree{"name": destination, "namespace": "default"},
		},
	}
}

func project(namespace, name string, destinations, sourceNamespaces []any) tree {
	return tree{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": tree{"namespace": namespace, "name": name},
		"spec": tree{"sourceRepos": []any{"*"}, "destinations": destinations, "sourceNamespaces": sourceNamespaces,
			"roles": []any{tree{"name": "dev", "policies": []any{"p, proj:" + name + ":dev, applications, sync, " + name + "/*, allow"}}}},
	}
}

func repository(namespace, name, project, url string) tree {
	data := tree{"url": b64(url), "password": b64("secret-" + url)}
	if project != "" {
		data["project"] = b64(project)
	}
	return tree{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": tree{"namespace": namespace, "name": name, "labels": tree{"argocd.argoproj.io/secret-type": "repository"}},
		"data":     data}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func unb64(s string) string {
	b, _ := base64.StdEncoding.DecodeString(s)
	return string(b)
}

func slicesSorted(seq iter.Seq[string]) []string { return slices.Sorted(seq) }

// applications lists those of a cluster that a condition holds for.
func (c *cluster) applications(which func(*kind.Object) bool) []kind.Ref {
	var out []kind.Ref
	for _, o := range c.st.list(kind.Applications) {
		if which(o) {
			out = append(out, refOf(kind.Applications, o))
		}
	}
	return out
}

func ignoredLabel(o *kind.Object) bool { return o.Label(ignoreKey) == "true" }

const (
	ignoreKey    = "argocd-agent.argoproj-labs.io/ignore-sync"
	agentKey     = "argocd-agent.argoproj-labs.io/agent-name"
	adoptedKey   = "argocd-agent.argoproj-labs.io/adopted"
	sourceKey    = "argocd.argoproj.io/source-uid"
	principalKey = "argocd.argoproj.io/principal-uid"
)
