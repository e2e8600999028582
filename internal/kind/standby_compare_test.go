package kind

import "testing"

func TestStandbyKind_ComparedOnPromotion(t *testing.T) {
	const (
		status = `"status":{"jwtTokensByRole":{}}`
		spec   = `"operation":{},"spec":{"project":"a"}`
		uid    = `"argocd.argoproj.io/principal-uid":"p"`
	)
	commands := `"argocd.argoproj.io/hydrate":"normal","argocd.argoproj.io/hydrate-timestamp":"t",` + uid +
		`,"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/refresh-timestamp":"t"`
	with := func(annotations, rest string) string {
		return `{"metadata":{"annotations":{` + annotations + `},"labels":{"a":"b"}},` + rest + `}`
	}
	for _, c := range []struct {
		resource Resource
		want     string
	}{
		{Applications, with(uid, spec)},
		{Agents, with(commands, spec)},
		{AppProjects, with(commands, spec+","+status)}, // tokens that the hub issued
	} {
		if got := standbyKind(t, c.resource).comparedOnPromotion([]byte(with(commands, spec+","+status))); string(got) != c.want {
			t.Errorf("%s: %s", c.resource.Plural, got)
		}
	}
	if got := standbyKind(t, Applications).comparedOnPromotion(nil); got != nil {
		t.Errorf("without content: %s", got)
	}
}
