// Package install returns the manifests of an agent for programs that install one. It customizes the kustomize base. The
// result equals the output of the chart for the same options, which a test checks.
package install

import (
	"embed"
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed kustomize/agent/*.yaml
var agentBase embed.FS

const (
	defaultNamespace = "argocd"
	paramsName       = "argocd-agent-params"
)

// Agent has the options of an agent on a workload cluster. Its zero value is the unchanged base, without a principal.
type Agent struct {
	Namespace string // Argo CD namespace. If empty, argocd.
	Image     string // If empty, the image of the base.
	// Settings by environment variable, such as ARGOCD_AGENT_REMOTE_SERVER. They override those of the base. An empty value
	// removes a setting.
	Settings map[string]string
	// AllNamespaces permits Applications outside the Argo CD namespace.
	AllNamespaces bool
	// NoRead and NoWrite remove the permissions to read and to change objects from the hub.
	NoRead, NoWrite bool
	// Exec and Secrets add the permissions to open exec sessions and to read Secrets.
	Exec, Secrets bool
}

// DefaultImage returns the image of the base.
func DefaultImage() string {
	text, _ := agentBase.ReadFile("kustomize/agent/deployment.yaml")
	var object map[string]any
	_ = yaml.Unmarshal(text, &object)
	for _, container := range list(at(object, "spec", "template", "spec")["containers"]) {
		image, _ := container["image"].(string)
		return image
	}
	return ""
}

// Manifests returns a YAML stream with all objects of the agent except its certificates.
func (a Agent) Manifests() ([]byte, error) {
	var out []byte
	for _, name := range a.files() {
		text, err := agentBase.ReadFile("kustomize/agent/" + name)
		if err != nil {
			return nil, fmt.Errorf("read agent manifests: %w", err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("read agent manifests: %s: %w", name, err)
			}
			a.customize(object)
			document, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("write agent manifests: %w", err)
			}
			out = fmt.Appendf(out, "---\n%s", document)
		}
	}
	return out, nil
}

func (a Agent) files() []string {
	files := []string{"crds.yaml", "rbac.yaml"}
	for _, optional := range []struct {
		include bool
		name    string
	}{
		{a.AllNamespaces, "rbac-all-namespaces.yaml"}, {!a.NoRead, "rbac-live-read.yaml"}, {!a.NoWrite, "rbac-live-write.yaml"},
		{a.Exec, "rbac-live-exec.yaml"}, {a.Secrets, "rbac-live-secrets.yaml"},
	} {
		if optional.include {
			files = append(files, optional.name)
		}
	}
	return append(files, "params.yaml", "deployment.yaml", "services.yaml", "networkpolicies.yaml", "poddisruptionbudget.yaml")
}

// customize applies the options to an object of the base.
func (a Agent) customize(object map[string]any) {
	metadata := at(object, "metadata")
	if a.Namespace != "" && a.Namespace != defaultNamespace {
		a.move(object, metadata)
	}
	switch {
	case object["kind"] == "ConfigMap" && metadata["name"] == paramsName:
		object["data"] = a.settings(at(object, "data"))
	case object["kind"] == "Deployment" && a.Image != "":
		for _, container := range list(at(object, "spec", "template", "spec")["containers"]) {
			container["image"] = a.Image
		}
	}
}

// move puts an object into another namespace. Names of cluster-scoped objects get the namespace as a suffix, so that one
// cluster can have two agents.
func (a Agent) move(object, metadata map[string]any) {
	const prefix = "argocd-agent-agent"
	rename := func(m map[string]any) {
		if name, _ := m["name"].(string); strings.HasPrefix(name, prefix) {
			m["name"] = prefix + "-" + a.Namespace + strings.TrimPrefix(name, prefix)
		}
	}
	for _, subject := range list(object["subjects"]) {
		subject["namespace"] = a.Namespace
	}
	if metadata["namespace"] != nil {
		metadata["namespace"] = a.Namespace
		return
	}
	rename(metadata)
	rename(at(object, "roleRef"))
}

func (a Agent) settings(base map[string]any) map[string]any {
	all := maps.Clone(base)
	set := func(name, value string) {
		all[name] = value
		if value == "" {
			delete(all, name)
		}
	}
	falseIf := map[bool]string{true: "false", false: ""}
	set("ARGOCD_AGENT_RESOURCE_PROXY_READS", falseIf[a.NoRead])
	set("ARGOCD_AGENT_RESOURCE_PROXY_LOGS", falseIf[a.NoRead])
	set("ARGOCD_AGENT_RESOURCE_PROXY_WRITES", falseIf[a.NoWrite])
	set("ARGOCD_AGENT_RESOURCE_PROXY_EXEC", falseIf[!a.Exec])
	for name, value := range a.Settings {
		set(name, value)
	}
	return all
}

// at returns the map at a path, or nil.
func at(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}

func list(value any) (maps []map[string]any) {
	items, _ := value.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	return maps
}
