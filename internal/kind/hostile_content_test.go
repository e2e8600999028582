package kind

import (
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Whatever the other side sends, some of the metadata of a copy is not its to write.
func TestHostileContent_WritesNoReservedMetadata(t *testing.T) {
	content := `{"uid":"u","metadata":{
		"labels":{"app.kubernetes.io/instance":"parent",` + ignoreLabel + `,"fine":"x"},
		"annotations":{"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/tracking-id":"t","argocd.argoproj.io/source-uid":"forged",
			"argocd-agent.argoproj-labs.io/adopted":"true","argocd-agent.argoproj-labs.io/last-command":"{}","fine":"x"},
		"finalizers":["example.org/forever","resources-finalizer.argocd.argoproj.io"]},
		"spec":{"project":"p","destination":{"name":"in-cluster"}}}`
	o := merge(t, ApplicationKind{}, nil, named("a"), content, managedSpoke())
	expectJSON(t, "labels", o.Get("metadata", "labels"), `{"fine":"x"}`)
	expectJSON(t, "annotations", o.Get("metadata", "annotations"), `{"fine":"x","argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"}`)
	if !slices.Equal(o.Finalizers(), []string{"resources-finalizer.argocd.argoproj.io"}) {
		t.Errorf("finalizers %v", o.Finalizers())
	}
}

func TestHostileContent_ImpossibleContentIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		code    engine.Code
	}{
		"a project that is no name": {`{"uid":"u","spec":{"project":"../p","destination":{"name":"in-cluster"}}}`, engine.Invalid},
		"more than is stored":       {`{"uid":"u","spec":{"project":"p","destination":{"name":"in-cluster"},"x":"` + strings.Repeat("x", maxContent) + `"}}`, engine.TooLarge},
	} {
		_, err := ApplicationKind{}.Merge(nil, named("a"), []byte(c.content), nil, Ownership{}, managedSpoke())
		expectRejected(t, name, err, c.code)
	}
}

func TestHostileContent_InvalidKeysAreRejected(t *testing.T) {
	_, err := RepositoryKind{}.Target(engine.Key{Namespace: "kube-system", Name: "r"}, managedSpoke())
	expectRejected(t, "a Secret of another namespace", err, engine.Invalid)
	_, err = ApplicationKind{}.Target(engine.Key{Namespace: "argo", Name: "a"}, autoSpoke())
	expectRejected(t, "a namespace that is implied", err, engine.Invalid)
}

func TestHostileContent_InvalidStatusTimeIsNotWritten(t *testing.T) {
	local := object(t, `{"metadata":{"name":"a","namespace":"one-ns"},"spec":{"destination":{"name":"one"}},"status":{"reconciledAt":"2026-01-01T00:00:00Z"}}`)
	o, err := StatusKind{}.Merge(local, named("a"), []byte(`{"status":{}}`), []byte(`{"reconciledAt":"tomorrow"}`), Ownership{}, managedHub())
	if err != nil {
		t.Fatal(err)
	}
	if v := o.Get("status", "reconciledAt"); v != nil {
		t.Errorf("reconciledAt %s", v)
	}
}

func TestHostileContent_OversizedRefreshIsIgnored(t *testing.T) {
	spoke := object(t, `{"metadata":{"name":"a","namespace":"argo","annotations":{`+ourMark+`}}}`)
	for _, content := range []string{
		`{"refresh":"normal","nonce":"` + strings.Repeat("n", 200) + `","uid":"s"}`,
		`{"refresh":"` + strings.Repeat("n", 200) + `","nonce":"n","uid":"s"}`,
	} {
		x, err := Execute(spoke, []byte(content), managedSpoke())
		if err != nil || x.Object != nil {
			t.Errorf("%.40s: %v, %v", content, x.Object, err)
		}
	}
}

func TestStatus_FitsDefaultLimit(t *testing.T) {
	var resources [][]byte
	for range 3000 {
		resources = append(resources, []byte(`{"kind":"ConfigMap","name":"`+strings.Repeat("x", 600)+`"}`))
	}
	content := `{"status":{"resources":` + string(rawjson.Join(resources)) + `}}`
	local := object(t, `{"metadata":{"name":"a","namespace":"one-ns"},"spec":{"destination":{"name":"one"}}}`)
	o, err := StatusKind{}.Merge(local, named("a"), []byte(content), nil, Ownership{}, managedHub())
	if err != nil || len(o.Raw()) > DefaultObjectLimit {
		t.Fatalf("%d bytes, %v", len(o.Raw()), err)
	}
}

func TestRoles_Policies(t *testing.T) {
	for line, want := range map[string]bool{
		"p, proj:p:r, applications, get, p/*, allow":        true,
		"p, proj:p:r, applications, get, p/team/web, deny":  true,
		"g, proj:p:r, applications, get, p/*, allow":        false,
		"p, proj:p:other, applications, get, p/*, allow":    false,
		"p, proj:q:r, applications, get, p/*, allow":        false,
		"p, proj:p:r, accounts, get, p/*, allow":            false,
		"p, proj:p:r, applications, impersonate, p/*, deny": false,
		"p, proj:p:r, applications, get, q/*, allow":        false,
		"p, proj:p:r, applications, get, p/a/b/c, allow":    false,
		"p, proj:p:r, applications, get, p/a b, allow":      false,
		"p, proj:p:r, applications, get, p/*, maybe":        false,
		"p, proj:p:r, applications, get, p/*":               false,
		"p, proj:p:r, applications, get, p/*, allow, again": false,
	} {
		if _, ok := parsePolicy(line, "p", "r"); ok != want {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

func TestRoles_GroupNames(t *testing.T) {
	for group, want := range map[string]bool{
		`team`: true, `team a`: true, `"a,b"`: true, `a,b`: false, `"`: false, `""`: false, `a"b`: false, " team": false, "a\nb": false, "\"a\nb\"": false, "": false,
	} {
		if got := validGroup(group); got != want {
			t.Errorf("%q: %v", group, got)
		}
	}
}
