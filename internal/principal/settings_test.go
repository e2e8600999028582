package principal

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func configMap(t *testing.T, data map[string]string) *kind.Object {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": argoConfig}, "data": data})
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReadSettings_Valid(t *testing.T) {
	s, err := readSettings(configMap(t, map[string]string{
		"application.instanceLabelKey": "tracking.example/app",
		"globalProjects": `
- projectName: one
  labelSelector:
    matchExpressions:
      - {key: opt, operator: In, values: [prod, stage]}
- projectName: two
  labelSelector:
    matchLabels: {all: "yes"}
`}))
	if err != nil {
		t.Fatal(err)
	}
	if s.InstanceLabel != "tracking.example/app" || len(s.GlobalProjects) != 2 || s.GlobalProjects[0].Name != "one" {
		t.Fatalf("%+v", s)
	}
	one, two := s.GlobalProjects[0].Selector, s.GlobalProjects[1].Selector
	if !one.Matches(map[string]string{"opt": "stage"}) || one.Matches(map[string]string{"opt": "test"}) || one.Matches(nil) {
		t.Error("the first selector")
	}
	if !two.Matches(map[string]string{"all": "yes"}) || two.Matches(map[string]string{"all": "no"}) {
		t.Error("the second selector")
	}
	for _, none := range []*kind.Object{nil, configMap(t, nil)} {
		if s, err := readSettings(none); err != nil || len(s.GlobalProjects) != 0 || s.InstanceLabel != "" {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestReadSettings_Invalid(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"application.instanceLabelKey": {"application.instanceLabelKey": "not a label"},
		"globalProjects":               {"globalProjects": "{"},
		"operator":                     {"globalProjects": "- {projectName: x, labelSelector: {matchExpressions: [{key: a, operator: Nope}]}}"},
	} {
		if _, err := readSettings(configMap(t, data)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
