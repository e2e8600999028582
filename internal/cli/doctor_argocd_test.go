package cli

import (
	"strings"
	"testing"
)

func TestDoctor_NamespacesOfApplications(t *testing.T) {
	const byDestination = "destination-based-mapping"
	for _, c := range []struct {
		name, side          string
		settings, flags, cm map[string]string
		level, message      string // empty: nothing is checked
	}{
		{"hub without the setting", "hub", nil, nil, map[string]string{}, levelProblem, "only Applications of its own namespace"},
		{"hub with the setting", "hub", nil, nil, map[string]string{"application.namespaces": "team-*"}, levelOK, "team-*"},
		{"hub with the flag of argocd-server", "hub", nil, map[string]string{"application-namespaces": "*"}, map[string]string{}, levelOK, "*"},
		{"hub in destination mapping", "hub", map[string]string{byDestination: "true"}, nil, map[string]string{}, levelOK, "its own namespace"},
		{"spoke in namespace mapping", "spoke", map[string]string{"agent-mode": "managed"}, nil, map[string]string{}, "", ""},
		{"autonomous spoke", "spoke", map[string]string{"agent-mode": "autonomous", byDestination: "true"}, nil, map[string]string{}, "", ""},
		{"spoke without the setting", "spoke", map[string]string{"agent-mode": "managed", byDestination: "true"}, nil, map[string]string{}, levelProblem, "only Applications of its own namespace"},
		{"spoke without one namespace", "spoke", map[string]string{"agent-mode": "managed", byDestination: "true", "allowed-namespaces": "team-a,other"}, nil,
			map[string]string{"application.namespaces": "team-*, x"}, levelProblem, "does not read Applications of other"},
		{"spoke with the setting", "spoke", map[string]string{"agent-mode": "managed", byDestination: "true", "allowed-namespaces": "team-*,other"},
			map[string]string{"application-namespaces": "team-*,other"}, map[string]string{"application.namespaces": "x"}, levelOK, "team-*, other"},
	} {
		e := &checkRun{}
		k := &checked{settings: &settings{flags: c.settings}, params: c.cm, argoFlags: c.flags, image: "argocd", install: &argoInstallation{installer: byManifests}}
		if c.side == "hub" {
			k.argo = map[string]string{"exec.enabled": "true"}
			e.argoOnHub(k)
		} else {
			e.argoOnSpoke(k)
		}
		switch {
		case c.level == "" && len(e.found) == 0:
		case len(e.found) != 1 || e.found[0].Level != c.level || !strings.Contains(e.found[0].Message, c.message):
			t.Errorf("%s: %+v", c.name, e.found)
		}
	}
}
