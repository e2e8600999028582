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

// The reference pages and the chart with its schema are generated from the flags.
const (
	referenceDirectory = "../../docs/reference"
	chartDirectory     = "../../install/helm/argocd-agent"
)

// notInTheChart lists the flags that must not be keys of a ConfigMap, and what to use instead.
var notInTheChart = map[string]string{
	"redis-password":        "the Secret that redis.secretName names, or extraEnv",
	"shared-redis-password": "extraEnv, from a Secret",
}

var roles = []struct{ name, prefix string }{{"agent", agentPrefix}, {"principal", principalPrefix}}

func TestReference_IsCurrent(t *testing.T) {
	for _, role := range roles {
		matches(t, filepath.Join(referenceDirectory, role.name+".md"), reference(role.name, declared(role.prefix)))
	}
}

func TestChart_HasEverySetting(t *testing.T) {
	var variables bytes.Buffer
	variables.WriteString("# The environment variable of each setting, generated from the flags: go test ./cmd/argocd-agent -update\n")
	file := filepath.Join(chartDirectory, "values.schema.json")
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
		for _, s := range all(f) {
			if notInTheChart[s.Name] == "" {
				properties[s.Name] = schemaOf(s.Flag)
				fmt.Fprintf(&variables, "  %s: %s\n", s.Name, s.env)
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
	matches(t, filepath.Join(chartDirectory, "files", "settings.yaml"), variables.String())
}

// matches compares a file with its expected content, or writes it.
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
		t.Errorf("%s is not up to date; run: go test ./cmd/argocd-agent -update", file)
	}
}

func all(f *flags) (list []*setting) {
	for _, g := range f.groups {
		list = append(list, g.settings...)
	}
	return list
}

// schemaOf returns the schema of a setting in the values of the chart.
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
	case strings.HasPrefix(kind, "LEVEL"):
		part := `([^,=]+=)?(trace|debug|info|warn|error)`
		schema["pattern"] = `^` + part + `(, *` + part + `)*$`
	case kind == "PATTERNS" || kind == "NAMES":
		schema = map[string]any{"type": []string{"string", "array"}, "items": text}
	case strings.HasPrefix(kind, "KEY=VALUE"):
		schema = map[string]any{"type": []string{"string", "object"}, "additionalProperties": text}
	}
	schema["description"] = flag.Usage
	return schema
}

// reference returns the page about the settings of a component.
func reference(command string, f *flags) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Generated from the flags: go test ./cmd/argocd-agent -update -->\n"+
		"# Settings of the %[1]s\n\n"+
		"Flags of `argocd-agent %[1]s`. Each flag has an environment variable, which you can set in the ConfigMap\n"+
		"`argocd-agent-params`. The values of the chart have the name of the flag, without the leading dashes, below\n"+
		"`%[1]s.settings`. A flag overrides its variable. An empty variable counts as absent. Settings are read once, at the start.\n", command)
	for _, g := range f.groups {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | environment | |\n|---|---|---|---|\n", g.title)
		for _, s := range g.settings {
			name := "`--" + s.Name + "`"
			if kind := s.Value.Type(); kind != "" {
				name += " " + cell(kind)
			}
			standard := s.unsetText
			if s.DefValue != "" {
				standard = "`" + s.DefValue + "`"
			}
			usage := s.Usage
			if instead := notInTheChart[s.Name]; instead != "" {
				usage += " Not in the chart's settings: use " + instead + "."
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", name, cell(standard), s.env, cell(usage))
		}
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
