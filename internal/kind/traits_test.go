package kind

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestWatches_CoverAllKinds(t *testing.T) {
	want := []Watch{
		{Resource: AppProjects},
		{Resource: Secrets, Selector: "argocd.argoproj.io/secret-type in (repository,repo-creds,repository-write,repo-write-creds)"},
		{Resource: ConfigMaps},
		{Resource: Applications, AnyNamespace: true},
	}
	if got := Watches(All()); !reflect.DeepEqual(got, want) {
		t.Errorf("watches are %+v", got)
	}
}

// tokenKind reads the same resource as RepositoryKind with another selector.
type tokenKind struct{ RepositoryKind }

func (tokenKind) Traits() Traits { return Traits{Name: "tokens", Selector: "token"} }

func TestWatches_SelectAllObjectsIfKindsOfAResourceDiffer(t *testing.T) {
	if got := Watches([]Kind{RepositoryKind{}, tokenKind{}}); len(got) != 1 || got[0].Selector != "" {
		t.Errorf("watches are %+v", got)
	}
}

func TestTraits_AreConsistent(t *testing.T) {
	var before []string
	for _, k := range All() {
		tr := k.Traits()
		if tr.DependsOn != "" && !slices.Contains(before, tr.DependsOn) {
			t.Errorf("%s depends on %s, which is not before it", k.Scope(), tr.DependsOn)
		}
		before = append(before, k.Scope())
		if _, removes := k.(Remover); removes != (tr.Style == engine.Mirror) {
			t.Errorf("%s: style %d, Remover %t", k.Scope(), tr.Style, removes)
		}
		for _, r := range tr.Reads {
			if !slices.Contains(Resources(All()), r) {
				t.Errorf("%s reads %s, which no kind watches", k.Scope(), r.Plural)
			}
		}
	}
}

// The values of spec.kinds are in the CRD, which is not generated.
func TestNames_AreTheValuesOfTheCRD(t *testing.T) {
	crd, err := os.ReadFile("../../install/crds/agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`enum: \[(applications[^\]]*)\]`).FindSubmatch(crd)
	if m == nil {
		t.Fatal("spec.kinds is not found")
	}
	want, got := strings.Split(string(m[1]), ", "), Names()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("kinds are %v, the CRD has %v", got, want)
	}
}

// Releases that announce no scopes know these and no others. A new kind is announced.
func TestTraits_AnnouncedUnlessOlderReleasesKnowThem(t *testing.T) {
	known := []string{AppProjectScope, RepositoryScope, GPGKeyScope, ApplicationScope, StatusScope, CommandScope}
	for _, k := range All() {
		if got := k.Traits().Announced; got == slices.Contains(known, k.Scope()) {
			t.Errorf("%s: announced %v", k.Scope(), got)
		}
	}
}
