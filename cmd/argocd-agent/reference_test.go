package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Where users find the settings, other than in the help: the reference, and the chart with its schema. All are made from
// the flags themselves, so that none lacks one.
const (
	referenceFolder = "../../docs/reference"
	chartFolder     = "../../install/helm/argocd-agent"
)

// notInTheChart lists flags that may not become a key of a ConfigMap, and what to use instead.
var notInTheChart = map[string]string{
	"redis-password":        "the Secret that redis.secretName names, or extraEnv",
	"shared-redis-password": "extraEnv, from a Secret",
}

var roles = []struct{ name, prefix string }{{"agent", agentPrefix}, {"principal", principalPrefix}}

func TestReferenceOfSettingsIsCurrent(t *testing.T) {
	for _, role := range roles {
		matches(t, filepath.Join(referenceFolder, role.name+".md"), reference(role.name, declared(role.prefix)))
	}
}

func TestChartKnowsEverySetting(t *testing.T) {
	var variables bytes.Buffer
	variables.WriteString("# The environment variable of each setting, made from the programs' flags: go test ./cmd/argocd-agent -update\n")
	file := filepath.Join(chartFolder, "values.schema.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	definitions, ok := schema["definitions"].(map[string]any)
	if !ok {
		t.Fatalf("%s has no definitions", file)
	}
	for _, role := range roles {
		f := declared(role.prefix)
		properties := map[string]any{}
		fmt.Fprintf(&variables, "%s:\n", role.name)
		for _, flag := range all(f) {
			if notInTheChart[flag.Name] == "" {
				properties[flag.Name] = schemaOf(flag)
				fmt.Fprintf(&variables, "  %s: %s\n", flag.Name, f.env[flag.Name])
			}
		}
		definitions[role.name+"Settings"] = map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	matches(t, file, out.String())
	matches(t, filepath.Join(chartFolder, "files", "settings.yaml"), variables.String())
}

// matches compares a file with what it should be, or writes it.
func matches(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the flags say; run: go test ./cmd/argocd-agent -update", file)
	}
}

func all(f *flags) (list []*pflag.Flag) {
	for _, g := range f.groups {
		list = append(list, g.flags...)
	}
	return list
}

// schemaOf is what a setting may be in the chart's values.
func schemaOf(flag *pflag.Flag) map[string]any {
	text := map[string]any{"type": "string"}
	schema := map[string]any{"type": "string"}
	switch kind := flag.Value.Type(); {
	case kind == "":
		schema["type"] = "boolean"
	case strings.Contains(kind, "|"):
		schema = map[string]any{"enum": strings.Split(kind, "|")}
	case kind == "PORT":
		schema = map[string]any{"type": "integer", "minimum": 0, "maximum": maxPort}
		if flag.Value.Set("0") != nil {
			schema["minimum"] = 1
		}
	case kind == "DURATION":
		schema["pattern"] = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	case kind == "PATTERNS" || kind == "NAMES":
		schema = map[string]any{"type": []string{"string", "array"}, "items": text}
	case strings.HasPrefix(kind, "KEY=VALUE"):
		schema = map[string]any{"type": []string{"string", "object"}, "additionalProperties": text}
	}
	schema["description"] = flag.Usage
	return schema
}

// reference is the page about a program's settings.
func reference(command string, f *flags) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Made from the program's flags: go test ./cmd/argocd-agent -update -->\n"+
		"# Settings of the %[1]s\n\n"+
		"Flags of `argocd-agent %[1]s`. Each can be set by its environment variable too, and so in the ConfigMap\n"+
		"`argocd-agent-params`; the chart takes them by the flag's name, without dashes, under `%[1]s.settings`. A flag wins over\n"+
		"its variable, and an empty variable counts as absent. Settings are read once, when the program starts.\n", command)
	for _, g := range f.groups {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | environment | |\n|---|---|---|---|\n", g.title)
		for _, flag := range g.flags {
			name := "`--" + flag.Name + "`"
			if kind := flag.Value.Type(); kind != "" {
				name += " " + cell(kind)
			}
			standard := f.unset[flag.Name]
			if flag.DefValue != "" {
				standard = "`" + flag.DefValue + "`"
			}
			usage := flag.Usage
			if instead := notInTheChart[flag.Name]; instead != "" {
				usage += " Not in the chart's settings: use " + instead + "."
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", name, cell(standard), f.env[flag.Name], cell(usage))
		}
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
