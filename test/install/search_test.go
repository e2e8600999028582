package install

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The search API has a port, a Service and roles only if it is on.
func TestChart_SearchIsOffByDefault(t *testing.T) {
	for _, tc := range []struct {
		values string
		on     bool
	}{
		{onHub, false},
		{onHub + ",principal.settings.search-port=0", false},
		{onHub + ",principal.settings.search-port=8444", true},
	} {
		all := objects(t, render(t, tc.values))
		for _, part := range []struct{ key, text string }{
			{"Service/argocd-agent-search", "targetPort: search"},
			{"Deployment/argocd-agent-principal", "name: search"},
			{"NetworkPolicy/argocd-agent-principal", "port: search"},
		} {
			found := false
			if o := all[part.key]; o != nil {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				found = strings.Contains(string(text), part.text)
			}
			if found != tc.on {
				t.Errorf("%s: %s has the search API: %t", tc.values, part.key, found)
			}
		}
		reviews := strings.Contains(render(t, tc.values), "subjectaccessreviews")
		if reviews != tc.on {
			t.Errorf("%s: the principal can create SubjectAccessReviews: %t", tc.values, reviews)
		}
	}
}
