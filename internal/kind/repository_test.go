package kind

import (
	"encoding/base64"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func repository(t *testing.T, secretTypeLabel, project string) *Object {
	t.Helper()
	if project != "" {
		project = `,"project":"` + base64.StdEncoding.EncodeToString([]byte(project)) + `"`
	}
	return object(t, `{"metadata":{"name":"repo","namespace":"argocd","uid":"u","labels":{"argocd.argoproj.io/secret-type":"`+secretTypeLabel+`"},"annotations":{"managed-by":"argocd.argoproj.io"}},
		"data":{"url":"eA=="`+project+`},"type":"Opaque"}`)
}

func TestRepository_FollowsProject(t *testing.T) {
	w := managedHub()
	projects := map[string]string{
		"here":  `{"sourceNamespaces":["*"],"destinations":[{"name":"one","namespace":"*"}]}`,
		"there": `{"sourceNamespaces":["*"],"destinations":[{"name":"two","namespace":"*"}]}`,
	}
	w.Find = func(r Ref) *Object {
		if spec := projects[r.Name]; spec != "" && r.Resource == AppProjects && r.Namespace == "argocd" {
			return object(t, `{"metadata":{"name":"`+r.Name+`","namespace":"argocd"},"spec":`+spec+`}`)
		}
		return nil
	}
	for _, c := range []struct {
		name, secretType, project string
		shared, want              bool
	}{
		{"of a project that is placed here", "repository", "here", false, true},
		{"credentials of such a project", "repo-creds", "here", false, true},
		{"of a project that is not", "repository", "there", true, false},
		{"of a project that does not exist", "repository", "nowhere", true, false},
		{"of no project", "repository", "", false, false},
		{"of no project, shared on request", "repository", "", true, true},
		{"a cluster", "cluster", "here", true, false},
		{"for writing", "repository-write", "here", true, false},
	} {
		w.Settings.ShareUnscopedRepositories = c.shared
		item, ok := RepositoryKind{}.Publish(repository(t, c.secretType, c.project), w)
		if ok != c.want {
			t.Errorf("%s: published is %v", c.name, ok)
		}
		if ok && item.DependsOn != named(c.project) {
			t.Errorf("%s: needs %v", c.name, item.DependsOn)
		}
	}
	projects["here"] = projects["there"]
	if _, ok := (RepositoryKind{}).Publish(repository(t, "repository", "here"), w); ok {
		t.Error("stays when the project moves away")
	}
	if _, ok := (RepositoryKind{}).Publish(repository(t, "repository", ""), autoHub()); ok {
		t.Error("goes to an autonomous agent")
	}
	auto := autoSpoke()
	auto.Settings.ShareUnscopedRepositories = true
	if _, ok := (RepositoryKind{}).Publish(repository(t, "repository", ""), auto); ok {
		t.Error("leaves an autonomous spoke")
	}
}

func TestRepository_MergesOnSpoke(t *testing.T) {
	content := `{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"url":"eA=="}}`
	created := merge(t, RepositoryKind{}, nil, named("repo"), content, managedSpoke())
	expectJSON(t, "created", created.Raw(), `{"apiVersion":"v1","kind":"Secret","type":"Opaque","data":{"url":"eA=="},
		"metadata":{"name":"repo","namespace":"argo","labels":{"argocd.argoproj.io/secret-type":"repository"},
		"annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1"}}}`)
	held, _ := RepositoryKind{}.ReadReplica(created, managedSpoke())
	expectJSON(t, "reflected", held.Content, content)

	adopted, err := RepositoryKind{}.Merge(created, named("repo"), []byte(content), nil, Ownership{Adopted: true}, managedSpoke())
	if err != nil || (RepositoryKind{}).Keeps(adopted) {
		t.Errorf("adopted credentials are kept: %v", err)
	}
	secret := object(t, `{"metadata":{"name":"argocd-secret","namespace":"argo"},"data":{"admin.password":"eA=="}}`)
	_, err = RepositoryKind{}.Merge(secret, named("argocd-secret"), []byte(content), nil, Ownership{}, managedSpoke())
	expectRejected(t, "Argo CD's own Secret", err, engine.NameTaken)
	if _, ok := (RepositoryKind{}).ReadReplica(secret, managedSpoke()); ok {
		t.Error("Argo CD's own Secret is compared")
	}
	for name, bad := range map[string]string{
		"a cluster":             `{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"cluster"}},"data":{}}`,
		"without a label":       `{"uid":"u","data":{}}`,
		"data that is not text": `{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"a":{}}}`,
	} {
		_, err := RepositoryKind{}.Merge(nil, named("x"), []byte(bad), nil, Ownership{}, managedSpoke())
		expectRejected(t, name, err, engine.Invalid)
	}
	_, err = RepositoryKind{}.Merge(nil, named("x"), []byte(content), nil, Ownership{}, managedHub())
	expectRejected(t, "on the hub", err, engine.WrongMode)
	_, err = RepositoryKind{}.Target(named("x"), autoSpoke())
	expectRejected(t, "an autonomous agent", err, engine.WrongMode)
}

func TestGPGKey_MergesOnSpoke(t *testing.T) {
	hub := managedHub()
	configMap := func(name string) *Object {
		return object(t, `{"metadata":{"name":"`+name+`","namespace":"argocd","uid":"u","labels":{"x":"y"}},"data":{"k":"v"}}`)
	}
	for _, trust := range []bool{false, true} {
		hub.Settings.SyncRepositoryTrust = trust
		for name, want := range map[string]bool{
			"argocd-gpg-keys-cm": true, "argocd-tls-certs-cm": trust, "argocd-ssh-known-hosts-cm": trust, "argocd-cm": false, "argocd-rbac-cm": false,
		} {
			if _, ok := (GPGKeyKind{}).Publish(configMap(name), hub); ok != want {
				t.Errorf("%s: published is %v", name, ok)
			}
		}
	}
	item, _ := GPGKeyKind{}.Publish(configMap("argocd-gpg-keys-cm"), hub)
	expectJSON(t, "content", item.Content, `{"uid":"u","data":{"k":"v"}}`)

	local := object(t, `{"metadata":{"name":"argocd-gpg-keys-cm","namespace":"argo","labels":{"app.kubernetes.io/part-of":"argocd"}},"data":{"old":"x"}}`)
	merged, err := GPGKeyKind{}.Merge(local, item.Key, item.Content, nil, Ownership{Adopted: true}, managedSpoke())
	if err != nil {
		t.Fatal(err)
	}
	expectJSON(t, "merged", merged.Raw(), `{"metadata":{"name":"argocd-gpg-keys-cm","namespace":"argo","labels":{"app.kubernetes.io/part-of":"argocd"},
		"annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/adopted":"true"}},"data":{"k":"v"}}`)
	held, _ := GPGKeyKind{}.ReadReplica(merged, managedSpoke())
	expectJSON(t, "reflected", held.Content, string(item.Content))
	if !(GPGKeyKind{}).Keeps(merged) {
		t.Error("every Argo CD comes with it, and yet it would be deleted")
	}
	created := merge(t, GPGKeyKind{}, nil, item.Key, string(item.Content), managedSpoke())
	if created.Label("app.kubernetes.io/part-of") != "argocd" {
		t.Error("Argo CD would not find it")
	}
	_, err = GPGKeyKind{}.Merge(nil, named("argocd-cm"), item.Content, nil, Ownership{}, managedSpoke())
	expectRejected(t, "another ConfigMap", err, engine.NotAllowed)
}
