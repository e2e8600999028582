// Package install returns the manifests of an agent or a principal for programs that install one. It customizes the
// kustomize base. The result equals the output of the chart for the same options, which a test checks.
package install

import (
	"embed"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml kustomize/agent/*.yaml kustomize/principal/*.yaml helm/argocd-agent/files/settings.yaml
var files embed.FS

const (
	defaultNamespace = "argocd"
	paramsName       = "argocd-agent-params"
	agentDeployment  = "argocd-agent-agent"
	importedSuffix   = "-imported"
)

// Names of the objects of a program with Imported.
const (
	ImportedPrincipal = "argocd-agent-principal" + importedSuffix
	ImportedAgent     = agentDeployment + importedSuffix
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
	// SelfUpgrade lets the hub upgrade the agent, if an AgentPolicy allows it.
	SelfUpgrade bool
	// Imported is set if the agent replaces one of an existing installation.
	Imported *Imported
}

// Principal has the options of a principal on a hub, see Agent.
type Principal struct {
	Namespace string
	Image     string
	Settings  map[string]string
	// NamespaceCreate adds the permission to create namespaces of agents.
	NamespaceCreate bool
	Imported        *Imported
}

// Imported customizes a program that replaces one of an existing installation. Its objects have other names, so that those
// of the existing installation stay. It has no Services of its own: those of the existing installation lead to its pods.
type Imported struct {
	PodLabels            map[string]string // that the Services select
	Env, Volumes, Mounts []map[string]any  // added to the pod
	Replicas             int               // if 0, as in the base
}

// DefaultImage returns the image of the base.
func DefaultImage() string {
	text, _ := files.ReadFile("kustomize/agent/deployment.yaml")
	var object map[string]any
	_ = yaml.Unmarshal(text, &object)
	for _, container := range list(at(object, "spec", "template", "spec")["containers"]) {
		image, _ := container["image"].(string)
		return image
	}
	return ""
}

// Variables returns the environment variable of each flag of a role, principal or agent.
func Variables(role string) map[string]string {
	text, _ := files.ReadFile("helm/argocd-agent/files/settings.yaml")
	all := map[string]map[string]string{}
	_ = yaml.Unmarshal(text, &all)
	return all[role]
}

// Definitions returns a YAML stream with the CRDs of a hub.
func Definitions() ([]byte, error) {
	return read([]string{"crds/agents.yaml", "crds/agentpolicies.yaml"}, func(map[string]any) {})
}

// Manifests returns a YAML stream with all objects of the agent except its certificates.
func (a Agent) Manifests() ([]byte, error) {
	return read(a.files(), base{"agent", a.Namespace, a.Image, a.settings(), a.Imported}.customize)
}

// Manifests returns a YAML stream with all objects of the principal except its certificates and CRDs.
func (p Principal) Manifests() ([]byte, error) {
	names := []string{"rbac.yaml", "rbac-all-namespaces.yaml", "params.yaml", "deployment.yaml", "services.yaml", "networkpolicies.yaml", "poddisruptionbudget.yaml"}
	if p.NamespaceCreate {
		names = append(names, "rbac-namespace-create.yaml")
	}
	return read(inBase("principal", names), base{"principal", p.Namespace, p.Image, p.Settings, p.Imported}.customize)
}

func inBase(role string, names []string) []string {
	for i := range names {
		names[i] = "kustomize/" + role + "/" + names[i]
	}
	return names
}

// read returns the objects of files as a YAML stream. An object that customize empties is left out.
func read(names []string, customize func(map[string]any)) ([]byte, error) {
	var out []byte
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("read manifests: %s: %w", name, err)
			}
			if customize(object); len(object) == 0 {
				continue
			}
			document, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("write manifests: %w", err)
			}
			out = fmt.Appendf(out, "---\n%s", document)
		}
	}
	return out, nil
}

func (a Agent) files() []string {
	names := []string{"crds.yaml", "rbac.yaml"}
	for _, optional := range []struct {
		include bool
		name    string
	}{
		{a.AllNamespaces, "rbac-all-namespaces.yaml"}, {!a.NoRead, "rbac-live-read.yaml"}, {!a.NoWrite, "rbac-live-write.yaml"},
		{a.Exec, "rbac-live-exec.yaml"}, {a.Secrets, "rbac-live-secrets.yaml"},
		{a.SelfUpgrade, "rbac-self-upgrade.yaml"},
	} {
		if optional.include {
			names = append(names, optional.name)
		}
	}
	return inBase("agent", append(names, "params.yaml", "deployment.yaml", "services.yaml", "networkpolicies.yaml", "poddisruptionbudget.yaml"))
}

// settings returns the settings of the options, then those of Settings.
func (a Agent) settings() map[string]string {
	falseIf := map[bool]string{true: "false", false: ""}
	all := map[string]string{
		"ARGOCD_AGENT_RESOURCE_PROXY_READS":  falseIf[a.NoRead],
		"ARGOCD_AGENT_RESOURCE_PROXY_LOGS":   falseIf[a.NoRead],
		"ARGOCD_AGENT_RESOURCE_PROXY_WRITES": falseIf[a.NoWrite],
		"ARGOCD_AGENT_RESOURCE_PROXY_EXEC":   falseIf[!a.Exec],
	}
	if a.SelfUpgrade {
		all["ARGOCD_AGENT_SELF_UPGRADE_DEPLOYMENT"] = agentDeployment
	}
	maps.Copy(all, a.Settings)
	return all
}

// base has the options of both roles.
type base struct {
	role, namespace, image string
	settings               map[string]string
	imported               *Imported
}

// customize applies the options to an object of the base.
func (b base) customize(object map[string]any) {
	metadata := at(object, "metadata")
	if b.namespace != "" && b.namespace != defaultNamespace {
		b.move(object, metadata)
	}
	switch object["kind"] {
	case "ConfigMap":
		b.set(at(object, "data"))
	case "Deployment":
		for _, container := range list(at(object, "spec", "template", "spec")["containers"]) {
			if b.image != "" {
				container["image"] = b.image
			}
			b.setPorts(container)
		}
	case "Service":
		if b.imported != nil {
			clear(object)
			return
		}
	}
	if b.imported != nil {
		b.imported.customize(object, metadata, "argocd-agent-"+b.role)
	}
}

// rename gives a name that starts with prefix another prefix.
func rename(m map[string]any, prefix, other string) {
	if name, _ := m["name"].(string); strings.HasPrefix(name, prefix) {
		m["name"] = other + strings.TrimPrefix(name, prefix)
	}
}

// move puts an object into another namespace. Names of cluster-scoped objects get the namespace as a suffix, so that one
// cluster can have two agents.
func (b base) move(object, metadata map[string]any) {
	prefix := "argocd-agent-" + b.role
	for _, subject := range list(object["subjects"]) {
		subject["namespace"] = b.namespace
	}
	if metadata["namespace"] != nil {
		metadata["namespace"] = b.namespace
		return
	}
	rename(metadata, prefix, prefix+"-"+b.namespace)
	rename(at(object, "roleRef"), prefix, prefix+"-"+b.namespace)
}

// set changes the settings of the ConfigMap.
func (b base) set(data map[string]any) {
	for name, value := range b.settings {
		if data[name] = value; value == "" {
			delete(data, name)
		}
	}
}

// setPorts changes ports of the pod.
func (b base) setPorts(container map[string]any) {
	for _, variable := range list(container["env"]) {
		name, _ := variable["name"].(string)
		port, err := strconv.Atoi(b.settings[name])
		if err != nil || port == 0 {
			continue
		}
		for _, declared := range list(container["ports"]) {
			if fmt.Sprint(declared["containerPort"]) == variable["value"] {
				declared["containerPort"] = port
			}
		}
		variable["value"] = strconv.Itoa(port)
	}
}

// customize applies the options to an object of a role, whose objects have names with this prefix.
func (i *Imported) customize(object, metadata map[string]any, prefix string) {
	imported := func(m map[string]any) {
		rename(m, prefix, prefix+importedSuffix)
		rename(m, paramsName, paramsName+importedSuffix)
	}
	imported(metadata)
	imported(at(object, "roleRef"))
	for _, subject := range list(object["subjects"]) {
		imported(subject)
	}
	if object["kind"] != "Deployment" {
		return
	}
	if i.Replicas > 0 {
		at(object, "spec")["replicas"] = i.Replicas
	}
	labels := at(object, "spec", "template", "metadata", "labels")
	for key, value := range i.PodLabels {
		if labels[key] == nil {
			labels[key] = value
		}
	}
	pod := at(object, "spec", "template", "spec")
	pod["serviceAccountName"] = prefix + importedSuffix
	add := func(m map[string]any, key string, items []map[string]any) {
		all, _ := m[key].([]any)
		for _, item := range items {
			all = append(all, item)
		}
		if len(all) > 0 {
			m[key] = all
		}
	}
	add(pod, "volumes", i.Volumes)
	for _, container := range list(pod["containers"]) {
		add(container, "env", i.Env)
		add(container, "volumeMounts", i.Mounts)
		for _, from := range list(container["envFrom"]) {
			imported(at(from, "configMapRef"))
		}
	}
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
