package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

// A user who may read the state of a hub may lack the permission to read its Deployment.
func TestHubStatus_WithoutSettings(t *testing.T) {
	old, h := demotedPair(t, &hubAPI{}, &hubAPI{forbidden: deploymentPath})
	var output, warnings strings.Builder
	p := &Program{Stdout: &output, Stderr: &warnings, Now: func() time.Time { return today }}
	if err := p.showHubs(t.Context(), []*hubInfo{h, old}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(output.String(), "standby") {
		t.Errorf("output %s", &output)
	}
	if !strings.Contains(warnings.String(), "unknown whether the hub (context b, namespace argocd) takes over by itself: get Deployment") {
		t.Errorf("warnings %s", &warnings)
	}
}

func TestHubStatus_NamesTheClock(t *testing.T) {
	params := map[string]string{paramsPath: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-agent-params","namespace":"argocd"},
		"data":{"ARGOCD_PRINCIPAL_HUB_LEASE_KUBECONFIG":"/k"}}`}
	_, h := demotedPair(t, &hubAPI{}, &hubAPI{objects: params})
	const clock = "(compared with the local clock)"
	for at, want := range map[time.Time]string{
		{}:                        "no record of when it last had all objects of the active hub",
		today.Add(-time.Minute):   "",
		today.Add(-9 * time.Hour): "longer ago than --hub-lease-max-lag allows " + clock,
		today.Add(time.Hour):      "later than its clock " + clock,
	} {
		if h.state.ProvenAt = 0; !at.IsZero() {
			h.state.ProvenAt = at.Unix()
		}
		got, err := h.waits(t.Context(), today)
		if err != nil || !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, %v, want %q", at, got, err, want)
		}
	}
}

// If one of two hubs of the same generation became the standby of the other one, it would lose what its agents have.
func TestDemote_RefusesTwoHubsOfOneGeneration(t *testing.T) {
	hub := map[string]string{"/api/v1/namespaces/kube-system": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"b"}}`,
		"/api/v1/namespaces/argocd/configmaps/argocd-agent-hub": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-agent-hub","namespace":"argocd"},
			"data":{"identity":"group","role":"active","generation":"1"}}`}
	h, other := demotedPair(t, &hubAPI{}, &hubAPI{objects: hub})
	const want = "Run `argocd-agentctl hub demote` with --principal-context a and with --principal-context b, and promote the hub that must be active with " +
		"`argocd-agentctl hub promote --accept-loss`"
	for _, role := range []hubstate.Role{hubstate.Active, hubstate.Standby} { // the second one after it was demoted
		h.state.Role = role
		if _, _, err := (&Program{}).followed(t.Context(), h, other.cluster); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", role, err)
		}
	}
	h.state.Role, other.state.Role = hubstate.Active, hubstate.Active
	if err := bothActive(h, other); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("hub status: %v", err)
	}
	h.state.Generation = 2
	if err := bothActive(h, other); err == nil || !strings.HasSuffix(err.Error(), "run `argocd-agentctl hub demote --principal-context b`") {
		t.Errorf("hub status of another generation: %v", err)
	}
}

// The standby of a hub may have been promoted by force, which the state of the hub does not show.
func TestPromoteAlone_RefusesAHubWithAStandby(t *testing.T) {
	for mode, want := range map[string]string{"managed": "", "standby": "its Agent hub-x registers another hub"} {
		api := &hubAPI{lists: map[string][]string{"/apis/argocd-agent.argoproj-labs.io/v1alpha1/namespaces/argocd/agents": {
			`{"apiVersion":"argocd-agent.argoproj-labs.io/v1alpha1","kind":"Agent","metadata":{"name":"hub-x","namespace":"argocd"},"spec":{"mode":"` + mode + `"}}`}}}
		h, _ := demotedPair(t, api, &hubAPI{})
		h.state.Identity = h.uid
		err := (&Program{Stdout: io.Discard, yes: true}).promoteAlone(t.Context(), h)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
		if promoted := len(api.written) == 1; promoted != (want == "") {
			t.Errorf("%s: written %q", mode, api.written)
		}
	}
}

// Each region can have a registry of its own.
func TestSameImage_ComparesNameTagAndDigest(t *testing.T) {
	with := func(image string) *hubAPI {
		return &hubAPI{objects: map[string]string{deploymentPath: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"argocd-agent-principal","namespace":"argocd"},
			"spec":{"template":{"spec":{"containers":[{"name":"principal","image":"` + image + `"}]}}}}`}}
	}
	for image, same := range map[string]bool{
		"eu.example.com/argocd-agent:v1":                          true,
		"us.example.com:5000/mirror/argocd/argocd-agent:v1":       true,
		"us.example.com:5000/mirror/argocd/argocd-agent:v2":       false,
		"us.example.com:5000/mirror/argocd/argocd-agent@sha256:0": false,
	} {
		a, b := demotedPair(t, with("eu.example.com/argocd-agent:v1"), with(image))
		if err := sameImage(t.Context(), a, b); (err == nil) != same {
			t.Errorf("%s: %v", image, err)
		}
	}
}
