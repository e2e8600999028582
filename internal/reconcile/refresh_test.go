package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Argo CD 3.5 and newer set hydrate with every refresh, and their controller
// removes it only where there is a source hydrator, when the hydration is done.
func TestRefresh_WithHydrateEndsOnHub(t *testing.T) {
	const both = `{"argocd.argoproj.io/refresh":"normal","argocd.argoproj.io/hydrate":"normal"}`
	for _, hydrator := range []bool{false, true} {
		p := newPair(t, kind.Managed)
		p.connect()
		body := app("w1", "a", "default", "v1")
		if hydrator {
			body = strings.Replace(body, `"spec":{`, `"spec":{"sourceHydrator":{"drySource":{"repoURL":"https://git/x"}},`, 1)
		}
		p.user(kind.Hub, ref("w1", "a"), body)
		spoke := func() *kind.Object { return p.stores[kind.Spoke].objects[ref("argocd", "a")] }
		hub := func() *kind.Object { return p.stores[kind.Hub].objects[ref("w1", "a")] }
		edit := func(side kind.Side, r kind.Ref, change func(map[string]string)) {
			o := p.stores[side].objects[r]
			annotations := o.Annotations()
			change(annotations)
			var list []string
			for k, v := range annotations {
				list = append(list, `"`+k+`":"`+strings.ReplaceAll(v, `"`, `\"`)+`"`)
			}
			p.user(side, r, string(set(t, o.Raw(), "{"+strings.Join(list, ",")+"}", "metadata", "annotations")))
		}
		for range 2 { // a second refresh works as the first
			p.user(kind.Hub, ref("w1", "a"), string(set(t, hub().Raw(), both, "metadata", "annotations")))
			if got := spoke().Annotation(kind.RefreshAnnotation); got != "normal" {
				t.Fatalf("hydrator %v: refresh on the spoke is %q", hydrator, got)
			}
			if got := spoke().Annotation(kind.HydrateAnnotation) != ""; got != hydrator {
				t.Fatalf("hydrator %v: hydrate on the spoke: %v", hydrator, got)
			}
			edit(kind.Spoke, ref("argocd", "a"), func(m map[string]string) { delete(m, kind.RefreshAnnotation) })
			if got := hub().Annotation(kind.RefreshAnnotation); got != "" {
				t.Errorf("hydrator %v: the hub still waits for the refresh", hydrator)
			}
			if got := hub().Annotation(kind.HydrateAnnotation) != ""; got != hydrator {
				t.Errorf("hydrator %v: hydrate on the hub: %v", hydrator, got)
			}
			if hydrator {
				edit(kind.Spoke, ref("argocd", "a"), func(m map[string]string) { delete(m, kind.HydrateAnnotation) })
				if hub().Annotation(kind.HydrateAnnotation) != "" {
					t.Error("the hub still waits for the hydration")
				}
			}
		}
	}
}
