package kind

import "testing"

func publishedSpec(t *testing.T, o *Object, w *Env) []byte {
	t.Helper()
	item, ok := AppProjectKind{}.Publish(o, w)
	if !ok {
		t.Fatal("not published")
	}
	return object(t, `{"metadata":{"name":"x"},"content":`+string(item.Content)+`}`).Get("content", "spec")
}

func TestProjectRewrite_KeepsDeniedDestinations(t *testing.T) {
	o := object(t, `{"metadata":{"name":"p","namespace":"argo","uid":"u"},"spec":{"destinations":[
		{"name":"!in-cluster","namespace":"a"},{"server":"!https://kubernetes.default.svc","namespace":"b"},{"name":"!other","namespace":"c"},{"name":"in-cluster","namespace":"d"}]}}`)
	expectJSON(t, "spec", publishedSpec(t, o, autoSpoke()), `{"sourceNamespaces":["one-ns"],"destinations":[{"name":"one","namespace":"c"},{"name":"one","namespace":"d"}]}`)
}

func TestProjectRewrite_RemovesServiceAccountsOfOtherClusters(t *testing.T) {
	spec := `{"sourceNamespaces":["*"],"destinations":[{"name":"one","namespace":"n"}],"destinationServiceAccounts":[
		{"server":"https://kubernetes.default.svc","namespace":"n","defaultServiceAccount":"hub"},
		{"server":"https://proxy:9090?agentName=one","namespace":"n","defaultServiceAccount":"mine"},
		{"server":"*","namespace":"n","defaultServiceAccount":"later"}]}`
	expectJSON(t, "spec", publishedSpec(t, project(t, spec), managedHub()), `{"destinations":[{"name":"in-cluster","namespace":"n","server":"https://kubernetes.default.svc"}],
		"destinationServiceAccounts":[{"server":"https://kubernetes.default.svc","namespace":"n","defaultServiceAccount":"mine"}]}`)
}

func TestProjectRewrite_IgnoresUnselectedGlobalProjects(t *testing.T) {
	everything, err := ParseSelector("")
	if err != nil {
		t.Fatal(err)
	}
	spec := `{"sourceNamespaces":["*"],"destinations":[{"name":"one","namespace":"n"}],"sourceRepos":["own"]}`
	global := object(t, `{"metadata":{"name":"global","namespace":"argocd"},"spec":{"sourceRepos":["inherited"]}}`)
	repos := func(o *Object, globals ...GlobalProject) string {
		w := managedHub()
		w.GlobalProjects = globals
		w.Find = func(r Ref) *Object {
			switch r.Name {
			case "global":
				return global
			case "p":
				return o
			}
			return nil
		}
		return string(object(t, `{"metadata":{"name":"x"},"spec":`+string(publishedSpec(t, o, w))+`}`).Get("spec", "sourceRepos"))
	}
	o := project(t, spec)
	if got := repos(o, GlobalProject{"global", everything}); got != `["own","inherited"]` {
		t.Errorf("a global project: %s", got)
	}
	if got := repos(o, GlobalProject{"p", everything}); got != `["own"]` {
		t.Errorf("itself: %s", got)
	}
	if got := repos(o, GlobalProject{"missing", everything}, GlobalProject{"global", everything}); got != `["own"]` {
		t.Errorf("one behind a missing one: %s", got)
	}
}
