package kind

import (
	"bytes"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// TreeOnHub returns the cached resource tree of an agent's Application with Applications named as on the hub, so that
// those of an app-of-apps link to their replicas.
func TreeOnHub(tree []byte, w *Env) []byte {
	rename := func(list []byte) []byte { return renameApplications(list, w.HubNameOf) }
	nodes := func(list []byte) []byte { return eachEdited(rename(list), rename, "parentRefs") }
	for _, part := range []string{"nodes", "orphanedNodes"} {
		tree = edited(tree, nodes, part)
	}
	return tree
}

// ManagedOnHub does the same for the list of managed resources, for an agent in either mode. The Application is called
// local in tracking IDs of the workload cluster, and hub in those of the hub: argocd app diff compares these objects
// with manifests that the hub's repo-server generates. Otherwise their content stays. A list that would have more than most
// bytes is an error: names of the hub can be several times as long.
func ManagedOnHub(list []byte, w *Env, local, hub string, most int) ([]byte, error) {
	// The objects are JSON in strings of JSON.
	const annotation = `\"argocd.argoproj.io/tracking-id\":\"`
	before, after := []byte(annotation+local+":"), []byte(annotation+hub+":")
	if size := len(list) + bytes.Count(list, before)*(len(after)-len(before)); size > most {
		return nil, fmt.Errorf("list of managed resources has %d bytes with tracking IDs of the hub, the limit is %d", size, most)
	}
	list = bytes.ReplaceAll(list, before, after)
	if !w.Agent.RenamesApplications() {
		return list, nil
	}
	return renameApplications(list, w.HubNameOf), nil
}

func eachEdited(list []byte, change func([]byte) []byte, path ...string) []byte {
	elements, err := rawjson.Elements(list)
	if err != nil {
		return list
	}
	changed := false
	for i, e := range elements {
		after := edited(e, change, path...)
		changed = changed || len(after) != len(e) || &after[0] != &e[0]
		elements[i] = after
	}
	if !changed {
		return list
	}
	return rawjson.Join(elements)
}
