package kind

import "testing"

func TestPublishedUID_OfRestoredObjects(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		w                 *Env
		want              string
	}{
		{"without annotations", "", managedHub(), "hub-uid"},
		{"restored", ourMark, managedHub(), "s"},
		{"of another hub", `"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"hub-2"`, managedHub(), "hub-uid"},
		{"without the hub", `"argocd.argoproj.io/source-uid":"s"`, managedHub(), "hub-uid"},
		{"replica of an agent", ourCopy, autoHub(), "hub-uid"},
		{"with an invalid UID", `"argocd.argoproj.io/source-uid":"a b","argocd.argoproj.io/principal-uid":"hub-1"`, managedHub(), "hub-uid"},
		{"on a workload cluster", ourMark, autoSpoke(), "hub-uid"},
	} {
		if got := PublishedUID(annotatedApp(t, "a", c.annotations), c.w); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPublish_RestoredObjectsUnderTheirSourceUID(t *testing.T) {
	w := managedHub()
	w.Settings.SyncArgoSettings = true
	meta := func(name, namespace, labels string) string {
		return `"metadata":{"name":"` + name + `","namespace":"` + namespace + `","uid":"new","labels":{` + labels + `},"annotations":{` + ourMark + `}}`
	}
	for k, text := range map[Kind]string{
		ApplicationKind{}: `{` + meta("a", "one-ns", "") + `,"spec":{"project":"p","destination":{"name":"one"}}}`,
		AppProjectKind{}:  `{` + meta("p", "argocd", "") + `,"spec":{"destinations":[{"name":"one","namespace":"*"}],"sourceNamespaces":["*"]}}`,
		RepositoryKind{}:  `{` + meta("r", "argocd", `"argocd.argoproj.io/secret-type":"repository"`) + `,"data":{"project":"cA=="}}`,
		GPGKeyKind{}:      `{` + meta("argocd-gpg-keys-cm", "argocd", "") + `,"data":{"k":"v"}}`,
		SettingsKind{}:    `{` + meta("argocd-cm", "argocd", "") + `,"data":{"resource.exclusions":"x"}}`,
		CommandKind{}:     `{"metadata":{"name":"a","namespace":"one-ns","uid":"new","annotations":{"argocd.argoproj.io/refresh":"normal",` + ourMark + `}},"spec":{"project":"p","destination":{"name":"one"}}}`,
	} {
		item, ok := k.Publish(object(t, text), w)
		if got := ContentUID(item.Content); !ok || got != "s" {
			t.Errorf("%s: published under %q, %v", k.Scope(), got, ok)
		}
	}
	frozen := object(t, `{`+meta("a", "one-ns", "")+`,"spec":{"project":"p","destination":{"name":"two"}}}`)
	if item, ok := (ApplicationKind{}).Publish(frozen, w); !ok || !IsFrozen(item.Content) || ContentUID(item.Content) != "s" {
		t.Errorf("frozen: %s %v", item.Content, ok)
	}
}

// After a rebuild of the hub an agent can change from managed to autonomous, as before. The replica of another agent is
// never handed over.
func TestHandOver_OfRestoredApplication(t *testing.T) {
	extra := []byte(`{"replicaOf":"s"}`)
	for annotations, want := range map[string]bool{
		ourMark: true,
		ourMark + `,"argocd-agent.argoproj-labs.io/agent-name":"two"`:                        false,
		`"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"hub-2"`:     false,
		`"argocd.argoproj.io/source-uid":"other","argocd.argoproj.io/principal-uid":"hub-1"`: false,
	} {
		if got := isHandedOver(annotatedApp(t, "a", annotations), extra, autoHub()); got != want {
			t.Errorf("%s: %v", annotations, got)
		}
	}
}
