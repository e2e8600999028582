package kind

import (
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// An agent that the matcher excludes does not learn of a project and its credentials. The matcher must include every
// agent that gets them.
func TestAgentMatcher_IncludesEveryAgentThatGetsTheProject(t *testing.T) {
	texts := []string{"", "a", "b", "ab", "argocd", "*", "a*", "!a", "!b*", "{a,b}", "[ab]", "?", "/a.*/", "/[/"}
	hit := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		text := func(what string) string { return rapid.SampledFrom(texts).Draw(t, what) }
		destinations := func() []byte {
			var list [][]byte
			for range rapid.IntRange(0, 3).Draw(t, "destinations") {
				list = append(list, rawjson.Object{{Key: "name", Value: rawjson.Quote(text("name"))}, {Key: "server", Value: rawjson.Quote(text("server"))},
					{Key: "namespace", Value: rawjson.Quote(text("namespace"))}}.Bytes())
			}
			return rawjson.Join(list)
		}
		project := func(name string) *Object {
			spec := rawjson.Object{{Key: "destinations", Value: destinations()}, {Key: "sourceNamespaces", Value: rawjson.AppendStrings(nil, []string{text("source"), text("source")})}}
			o, err := Parse([]byte(`{"metadata":{"namespace":"argocd","name":"` + name + `","uid":"u"},"spec":` + string(spec.Bytes()) + `}`))
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		secret, err := Parse([]byte(`{"metadata":{"namespace":"argocd","name":"s","uid":"v","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"project":"` +
			rapid.SampledFrom([]string{"", "cA==" /* p */, "Zw==" /* g */, "eA==" /* x */}).Draw(t, "project") + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		p, g := project("p"), project("g")
		w := Env{Side: Hub, HubArgoNamespace: "argocd", SpokeArgoNamespace: "argocd", Projection: 1, PrincipalUID: "p",
			Settings: Settings{ShareUnscopedRepositories: rapid.Bool().Draw(t, "share")},
			Find:     func(ref Ref) *Object { return map[string]*Object{"p": p, "g": g}[ref.Name] }}
		if rapid.Bool().Draw(t, "global") {
			w.GlobalProjects = []GlobalProject{{Name: "g", Selector: LabelSelector{Selector: labels.Everything()}}}
		}
		noAgent := w
		w.Agent = Agent{Name: rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "agent"), Server: text("its server"), HubNamespace: rapid.SampledFrom([]string{"a", "b", "argocd"}).Draw(t, "its namespace"),
			Mode: Managed, Mapping: rapid.SampledFrom([]Mapping{ByNamespace, ByDestination}).Draw(t, "mapping")}
		matcher := matchProject(p, &noAgent)
		if _, gets := (AppProjectKind{}).Publish(p, &w); gets {
			hit["project"] = true
			if !matcher.Matches(w.Agent) {
				t.Fatal("the project is the agent's, and its matcher does not cover it")
			}
		} else if !matcher.Matches(w.Agent) {
			hit["passed over"] = true
		}
		if _, gets := (RepositoryKind{}).Publish(secret, &w); gets {
			hit["repository"] = true
			if matcher := matchRepository(secret, &noAgent); !matcher.Matches(w.Agent) {
				t.Fatal("the repository is the agent's, and its matcher does not cover it")
			}
		}
	})
	if len(hit) != 3 {
		t.Errorf("of what has to happen only this did: %v", hit)
	}
}

func TestAgentMatcher_MatchesSourceAgentOfReplica(t *testing.T) {
	o, err := Parse([]byte(`{"metadata":{"namespace":"argocd","name":"edge-1-web"},"spec":{"destinations":[{"name":"*","namespace":"*"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	matcher := matchProject(o, &Env{Side: Hub, HubArgoNamespace: "argocd"})
	for agent, want := range map[string]bool{"edge-1": true, "edge-2": false, "edge": false} {
		if got := matcher.Matches(Agent{Name: agent, Mode: Autonomous}); got != want {
			t.Errorf("%s: %v", agent, got)
		}
	}
}

func TestAgentMatcher_MatchesStarsWithoutRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringOf(rapid.RuneFrom([]rune(`ab*é.}`))).Draw(t, "glob")
		text := rapid.StringOf(rapid.RuneFrom([]rune("abé.}\n"))).Draw(t, "text")
		p := parseGlob(glob)
		if want := regexp.MustCompile(`(?s)\A(?:` + p.expression.String() + `)\z`).MatchString(text); starsOnly(glob)(text) != want {
			t.Fatalf("%q on %q should be %v", glob, text, want)
		}
	})
}
