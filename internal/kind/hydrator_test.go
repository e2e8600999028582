package kind

import (
	"encoding/base64"
	"fmt"
	"testing"
)

func writer(t *testing.T, secretTypeLabel, project, url string) *Object {
	t.Helper()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return object(t, fmt.Sprintf(`{"metadata":{"name":"push","namespace":"argocd","uid":"u","labels":{"argocd.argoproj.io/secret-type":%q}},
		"data":{"url":%q,"project":%q,"password":"c2VjcmV0"}}`, secretTypeLabel, encode(url), encode(project)))
}

func hydrated(t *testing.T, destination, project, hydrator string) *Object {
	t.Helper()
	return object(t, fmt.Sprintf(`{"metadata":{"name":"app","namespace":"one-ns","uid":"a"},"spec":{"project":%q,"destination":{"name":%q,"namespace":"x"}%s}}`, project, destination, hydrator))
}

const (
	pushesToDry  = `,"sourceHydrator":{"drySource":{"repoURL":"https://git/team/Repo.git"},"syncSource":{"targetBranch":"env"}}`
	pushesToSync = `,"sourceHydrator":{"drySource":{"repoURL":"https://git/dry"},"syncSource":{"repoURL":"https://git/team/repo"}}`
)

func TestWriteCredentials_OnlyToAgentsThatPush(t *testing.T) {
	for _, c := range []struct {
		name         string
		off          bool
		secret       *Object
		destination  string
		project      string
		hydrator     string
		want, unused bool
	}{
		{name: "of a repository", secret: writer(t, "repository-write", "here", "https://git/team/repo"), want: true},
		{name: "of another repository to push to", secret: writer(t, "repository-write", "here", "https://git/team/repo"), hydrator: pushesToSync, want: true},
		{name: "of the repository that is only read", secret: writer(t, "repository-write", "here", "https://git/dry"), hydrator: pushesToSync},
		{name: "for all below a URL", secret: writer(t, "repo-write-creds", "here", "https://git/team"), want: true},
		{name: "without the setting", off: true, secret: writer(t, "repository-write", "here", "https://git/team/repo")},
		{name: "of another URL", secret: writer(t, "repository-write", "here", "https://git/team")},
		{name: "without a URL", secret: writer(t, "repo-write-creds", "here", "")},
		{name: "of another project", secret: writer(t, "repository-write", "other", "https://git/team/repo")},
		{name: "of no project", secret: writer(t, "repository-write", "", "https://git/team/repo")},
		{name: "for an Application without a hydrator", secret: writer(t, "repository-write", "here", "https://git/team/repo"), hydrator: `,"source":{"repoURL":"https://git/team/repo"}`},
		{name: "for an Application of another cluster", secret: writer(t, "repository-write", "here", "https://git/team/repo"), destination: "two"},
		{name: "for an Application of another project", secret: writer(t, "repository-write", "here", "https://git/team/repo"), project: "other"},
		{name: "without an Application", secret: writer(t, "repository-write", "here", "https://git/team/repo"), unused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := managedHub()
			w.Settings.SyncWriteCredentials, w.Settings.ShareUnscopedRepositories = !c.off, true
			w.Find = func(r Ref) *Object {
				if r.Resource == AppProjects && (r.Name == "here" || r.Name == "other") {
					return object(t, `{"metadata":{"name":"`+r.Name+`","namespace":"argocd"},"spec":{"sourceRepos":["*"],"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`)
				}
				return nil
			}
			or := func(s, other string) string {
				if s == "" {
					return other
				}
				return s
			}
			app := hydrated(t, or(c.destination, "one"), or(c.project, "here"), or(c.hydrator, pushesToDry))
			w.Pushing = func(string) []*Object {
				if c.unused {
					return nil
				}
				return []*Object{app}
			}
			if _, ok := (RepositoryKind{}).Publish(c.secret, w); ok != c.want {
				t.Errorf("sent: %v", ok)
			}
		})
	}
}

func TestWriteCredentials_SpokeStoresThemOnlyFromItsHub(t *testing.T) {
	hub, spoke := managedHub(), managedSpoke()
	hub.Settings.SyncWriteCredentials = true
	hub.Find = func(r Ref) *Object {
		return object(t, `{"metadata":{"name":"`+r.Name+`","namespace":"argocd"},"spec":{"sourceRepos":["*"],"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`)
	}
	hub.Pushing = func(string) []*Object { return []*Object{hydrated(t, "one", "here", pushesToDry)} }
	item, ok := (RepositoryKind{}).Publish(writer(t, "repository-write", "here", "https://git/team/repo"), hub)
	if !ok {
		t.Fatal("not sent")
	}
	stored, err := RepositoryKind{}.Merge(nil, item.Key, item.Content, nil, Ownership{}, spoke)
	if err != nil || stored.Label(secretType) != "repository-write" || secretText(stored, "password") != "secret" {
		t.Fatalf("%v %v", stored, err)
	}
	if _, ok := (RepositoryKind{}).Publish(writer(t, "repository-write", "here", "https://git/team/repo"), autoSpoke()); ok {
		t.Error("an autonomous agent sends its credentials")
	}
}
