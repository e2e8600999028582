package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// internal/cli records the help of every command.
func TestReference_CommandLineIsCurrent(t *testing.T) {
	folder := filepath.Join(root, "internal", "cli", "testdata", "help")
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("<!-- Made from the help of the commands: go test ./test/docs -update -->\n# argocd-agentctl\n")
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".txt"))
	}
	slices.Sort(names) // a command comes before its subcommands
	for _, name := range names {
		text := read(t, filepath.Join(folder, name+".txt"))
		title := strings.Join(slices.Concat([]string{"argocd-agentctl"}, words(text)), " ")
		if name != "ctl" { // global flags are shown once
			text, _, _ = strings.Cut(text, "\nWhich clusters are meant, and where a kubeconfig is")
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", title, strings.TrimSpace(text))
	}
	matches(t, "argocd-agentctl.md", b.String())
}

// words returns the words of a command from its usage line.
func words(help string) (command []string) {
	_, usage, _ := strings.Cut(help, "\nUsage:\n  argocd-agentctl")
	line, _, _ := strings.Cut(usage, "\n")
	for word := range strings.FieldsSeq(line) {
		if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-") != "" {
			break
		}
		command = append(command, word)
	}
	return command
}

type property struct {
	Type, Description string
	Enum, Required    []string
	Properties        map[string]*property
	Items             *property
	Additional        *property `json:"additionalProperties"`
	Rules             []struct {
		Message string
	} `json:"x-kubernetes-validations"`
}

func TestReference_ResourcesAreCurrent(t *testing.T) {
	for _, c := range []struct{ crd, page, where string }{
		{"agents", "agent-resource.md", "the namespace of Argo CD on the hub"},
		{"agentpolicies", "agentpolicy-resource.md", "the namespace of the agent on a workload cluster"},
	} {
		var definition struct {
			Spec struct {
				Group    string
				Names    struct{ Kind, Plural string }
				Versions []struct {
					Name    string
					Columns []struct {
						Name     string
						JSONPath string
						Priority int
					} `json:"additionalPrinterColumns"`
					Schema struct{ OpenAPIV3Schema *property }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, root+"/install/crds/"+c.crd+".yaml")), &definition); err != nil {
			t.Fatal(err)
		}
		version, names := definition.Spec.Versions[0], definition.Spec.Names
		all := version.Schema.OpenAPIV3Schema
		var b strings.Builder
		fmt.Fprintf(&b, "<!-- Made from install/crds/%s.yaml: go test ./test/docs -update -->\n# The %s resource\n\n"+
			"`%s/%s`, kind `%s`, in %s. %s\n", c.crd, names.Kind, definition.Spec.Group, version.Name, names.Kind, c.where, oneLine(all.Description))
		for _, part := range []string{"spec", "status"} {
			if all.Properties[part] == nil {
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| field | type | |\n|---|---|---|\n", part, oneLine(all.Properties[part].Description))
			fields(&b, part+".", all.Properties[part])
		}
		fmt.Fprintf(&b, "\n## Columns\n\n`kubectl get %s` shows, and more with `-o wide`:\n\n| column | of | |\n|---|---|---|\n", names.Plural)
		for _, column := range version.Columns {
			wide := ""
			if column.Priority > 0 {
				wide = "wide"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", column.Name, strings.ReplaceAll(column.JSONPath, "|", `\|`), wide)
		}
		matches(t, c.page, b.String())
	}
}

func fields(b *strings.Builder, path string, p *property) {
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		field := p.Properties[name]
		kind := field.Type
		switch {
		case len(field.Enum) > 0:
			kind = strings.Join(field.Enum, ", ")
		case field.Type == "array":
			kind = "list of " + field.Items.Type
		case field.Additional != nil:
			kind = "map of " + field.Additional.Type
		}
		text := oneLine(field.Description)
		for _, rule := range field.Rules {
			text += " (" + rule.Message + ")"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", path, name, kind, strings.ReplaceAll(text, "|", `\|`))
		fields(b, path+name+".", field)
		if field.Items != nil {
			fields(b, path+name+"[].", field.Items)
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
