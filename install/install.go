// Package install has the manifests of an agent as users install them, for programs that install one: the kustomize base,
// made to fit. What it returns is what the chart renders for the same wishes; a test keeps the two the same.
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
	usualNamespace = "argocd"
	paramsName     = "argocd-agent-params"
)

// Agent is the wish for an agent on a workload cluster. Its zero value is the base as it is, which knows no principal yet.
type Agent struct {
	Namespace string // of Argo CD; empty: argocd
	Image     string // empty: that of the base
	// Settings by the names of their environment variables, such as ARGOCD_AGENT_REMOTE_SERVER. They are laid over those of
	// the base; an empty value removes one.
	Settings map[string]string
	// AllNamespaces lets Applications be outside of Argo CD's namespace.
	AllNamespaces bool
	// NoRead and NoWrite take back the rights to look at objects from the hub, and to change them.
	NoRead, NoWrite bool
	// Exec and Secrets give rights to open terminals in pods, and to look at Secrets.
	Exec, Secrets bool
}

// DefaultImage is the image of an agent that wishes for none.
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

// Manifests is a YAML stream of everything that the agent needs, apart from its certificates.
func (a Agent) Manifests() ([]byte, error) {
	var out []byte
	for _, name := range a.files() {
		text, err := agentBase.ReadFile("kustomize/agent/" + name)
		if err != nil {
			return nil, fmt.Errorf("read the agent's manifests: %w", err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("read the agent's manifests: %s: %w", name, err)
			}
			a.customize(object)
			document, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("write the agent's manifests: %w", err)
			}
			out = fmt.Appendf(out, "---\n%s", document)
		}
	}
	return out, nil
}

func (a Agent) files() []string {
	files := []string{"rbac.yaml"}
	for _, optional := range []struct {
		wanted bool
		name   string
	}{
		{a.AllNamespaces, "rbac-all-namespaces.yaml"}, {!a.NoRead, "rbac-live-read.yaml"}, {!a.NoWrite, "rbac-live-write.yaml"},
		{a.Exec, "rbac-live-exec.yaml"}, {a.Secrets, "rbac-live-secrets.yaml"},
	} {
		if optional.wanted {
			files = append(files, optional.name)
		}
	}
	return append(files, "params.yaml", "deployment.yaml", "services.yaml", "networkpolicies.yaml", "poddisruptionbudget.yaml")
}

// customize makes an object of the base what is wished for.
func (a Agent) customize(object map[string]any) {
	metadata := at(object, "metadata")
	if a.Namespace != "" && a.Namespace != usualNamespace {
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

// move puts an object into another namespace. What belongs to none is named after it, so that two agents can be on one
// cluster.
func (a Agent) move(object, metadata map[string]any) {
	const own = "argocd-agent-agent"
	rename := func(m map[string]any) {
		if name, _ := m["name"].(string); strings.HasPrefix(name, own) {
			m["name"] = own + "-" + a.Namespace + strings.TrimPrefix(name, own)
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
	onOff := map[bool]string{true: "false", false: ""}
	set("ARGOCD_AGENT_RESOURCE_PROXY_READS", onOff[a.NoRead])
	set("ARGOCD_AGENT_RESOURCE_PROXY_LOGS", onOff[a.NoRead])
	set("ARGOCD_AGENT_RESOURCE_PROXY_WRITES", onOff[a.NoWrite])
	set("ARGOCD_AGENT_RESOURCE_PROXY_EXEC", onOff[!a.Exec])
	for name, value := range a.Settings {
		set(name, value)
	}
	return all
}

// at is the map at a path; an empty one where there is none.
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
