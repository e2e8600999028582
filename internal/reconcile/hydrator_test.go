package reconcile

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// pushingPair is a pair whose hub sends credentials to push, or not.
func pushingPair(t *testing.T, send bool) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1", Settings: kind.Settings{SyncWriteCredentials: send}})
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	for _, r := range Resources() {
		list := List{Resource: r, Revision: 1}
		if r == kind.AppProjects {
			list.Objects = []*kind.Object{p.stores[kind.Hub].objects[projectRef("default")]}
		}
		p.step(kind.Hub, list)
	}
	return p
}

func secretRef(name string) kind.Ref {
	return kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: name}
}

func writeSecret(project string) string {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"push","namespace":"argocd","labels":{"argocd.argoproj.io/secret-type":"repository-write"}},
		"data":{"url":%q,"project":%q,"password":"c2VjcmV0"}}`, encode("https://git/x"), encode(project))
}

const hydrator = `{"drySource":{"repoURL":"https://git/x.git","path":"dry","targetRevision":"main"},"syncSource":{"targetBranch":"env","path":"live"}}`

func hydratedApp(name string) string {
	return strings.Replace(app("w1", name, "default", "v1"), `"source":`, `"sourceHydrator":`+hydrator+`,"source":`, 1)
}

// pushes reports whether the workload cluster has the credentials.
func (p *pair) pushes() bool { return p.stores[kind.Spoke].objects[secretRef("push")] != nil }

// hydratorCondition returns the conditions of the Application a if one of them is about its hydrator.
func (p *pair) hydratorCondition() string {
	if c := p.hubConditions(); strings.Contains(c, kind.ConditionHydrator) {
		return c
	}
	return ""
}

func TestHydrator_CredentialsFollowTheApplication(t *testing.T) {
	p := pushingPair(t, true)
	p.user(kind.Hub, secretRef("push"), writeSecret("default"))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.connect()
	if p.pushes() {
		t.Fatal("an agent without a source hydrator has credentials to push")
	}
	p.edit(kind.Hub, ref("w1", "a"), hydrator, "spec", "sourceHydrator")
	if !p.pushes() {
		t.Fatal("they do not arrive with the source hydrator")
	}
	p.user(kind.Hub, ref("w1", "b"), hydratedApp("b"))
	p.removeOnHub(ref("w1", "b"), true)
	p.settle()
	if !p.pushes() {
		t.Error("they leave with another Application")
	}
	p.edit(kind.Hub, ref("w1", "a"), `null`, "spec", "sourceHydrator")
	if p.pushes() {
		t.Error("they stay without a source hydrator")
	}
	p.edit(kind.Hub, ref("w1", "a"), hydrator, "spec", "sourceHydrator")
	p.edit(kind.Hub, ref("w1", "a"), `"elsewhere"`, "spec", "destination", "name")
	if p.pushes() {
		t.Error("they stay although the Application is not placed")
	}
	p.edit(kind.Hub, ref("w1", "a"), `"w1"`, "spec", "destination", "name")
	if !p.pushes() {
		t.Error("they do not return")
	}
	p.step(kind.Hub, Bookmark{Resource: kind.Secrets, Revision: 1000}) // the AppProject is not newer than what is known of Secrets
	p.edit(kind.Hub, projectRef("default"), `[{"name":"w1","namespace":"other"}]`, "spec", "destinations")
	if p.pushes() {
		t.Error("they stay although the AppProject does not permit the namespace")
	}
	p.edit(kind.Hub, projectRef("default"), `[{"name":"w1","namespace":"*"}]`, "spec", "destinations")
	if !p.pushes() {
		t.Error("they do not return with the AppProject")
	}
	p.edit(kind.Hub, projectRef("default"), `[{"name":"w2","namespace":"*"}]`, "spec", "destinations")
	if p.pushes() {
		t.Error("they stay although the AppProject does not permit the cluster")
	}
}

func TestHydrator_CredentialsLeaveWithTheApplication(t *testing.T) {
	p := pushingPair(t, true)
	p.user(kind.Hub, secretRef("push"), writeSecret("default"))
	p.user(kind.Hub, ref("w1", "a"), hydratedApp("a"))
	p.connect()
	if !p.pushes() {
		t.Fatal("no credentials")
	}
	p.sides[kind.Hub].Repositories("w1", func(secret *kind.Object, _ bool) { // those that the hub's repo-server uses in shared mode
		t.Errorf("%s is a repository to read", secret.Name())
	})
	p.removeOnHub(ref("w1", "a"), true)
	p.settle()
	if p.pushes() {
		t.Error("they stay")
	}
}

func TestHydrator_RestartedHubDoesNotWithdrawCredentials(t *testing.T) {
	p := pushingPair(t, true)
	p.user(kind.Hub, secretRef("push"), writeSecret("default"))
	p.user(kind.Hub, ref("w1", "a"), hydratedApp("a"))
	p.connect()
	uid := p.stores[kind.Spoke].objects[secretRef("push")].UID()
	p.disconnect()
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1", Settings: kind.Settings{SyncWriteCredentials: true}})
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	p.lists(kind.Hub, kind.Secrets, kind.ConfigMaps, kind.AppProjects)
	p.connect()
	p.waitSeconds(60)
	p.lists(kind.Hub, kind.Applications)
	p.settle()
	if now := p.stores[kind.Spoke].objects[secretRef("push")]; now == nil || now.UID() != uid {
		t.Error("the credentials were withdrawn before Applications were read")
	}
}

func TestHydrator_ConditionNamesWhatIsMissing(t *testing.T) {
	for _, send := range []bool{false, true} {
		p := pushingPair(t, send)
		p.user(kind.Hub, ref("w1", "a"), hydratedApp("a"))
		p.connect()
		p.waitSeconds(60)
		want := "--sync-write-credentials"
		if send {
			want = "repository-write or repo-write-creds on the hub, with project default"
		}
		if got := p.hydratorCondition(); !strings.Contains(got, want) {
			t.Errorf("sends %v: %q", send, got)
		}
		p.waitSeconds(60)
		p.user(kind.Hub, secretRef("push"), writeSecret("default"))
		p.waitSeconds(60)
		if got := p.hydratorCondition(); (got == "") != send || p.pushes() != send {
			t.Errorf("sends %v, with a Secret: %q", send, got)
		}
		p.removeOnHub(secretRef("push"), true)
		p.settle()
		p.waitSeconds(60)
		if got := p.hydratorCondition(); got == "" || p.pushes() {
			t.Errorf("sends %v, without the Secret again: %q", send, got)
		}
		p.edit(kind.Hub, ref("w1", "a"), `null`, "spec", "sourceHydrator")
		p.waitSeconds(60)
		if got := p.hydratorCondition(); got != "" {
			t.Errorf("sends %v, without a source hydrator: %q", send, got)
		}
	}
}

// Since Argo CD v3.3, two clusters that push to one branch skip manifests of each other.
func TestHydrator_ConditionNamesOtherAgentOfBranch(t *testing.T) {
	p := pushingPair(t, true)
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w2", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w2", Server: "https://proxy:9090?agentName=w2"}})
	p.user(kind.Hub, secretRef("push"), writeSecret("default"))
	p.user(kind.Hub, ref("w1", "a"), hydratedApp("a"))
	p.user(kind.Hub, ref("w1", "b"), hydratedApp("b")) // of the same agent, and the next one too
	p.user(kind.Hub, ref("w1", "d"), strings.Replace(hydratedApp("d"), `"destination":{"name":"w1"`, `"destination":{"server":"https://proxy:9090?agentName=w1"`, 1))
	p.connect()
	if got := p.hydratorCondition(); got != "" {
		t.Fatalf("one agent with two Applications: %s", got)
	}
	other := strings.NewReplacer(`"namespace":"w1"`, `"namespace":"w2"`, `"name":"w1"`, `"name":"w2"`).Replace(hydratedApp("c"))
	p.user(kind.Hub, ref("w2", "c"), other)
	p.edit(kind.Hub, ref("w1", "a"), `"v2"`, "spec", "source", "targetRevision")
	p.waitSeconds(60)
	if got := p.hydratorCondition(); !strings.Contains(got, "agent w2 pushes to the same branch") {
		t.Fatalf("two agents: %q", got)
	}
	p.edit(kind.Hub, ref("w1", "a"), `"own"`, "spec", "sourceHydrator", "syncSource", "targetBranch")
	p.waitSeconds(60)
	if got := p.hydratorCondition(); got != "" {
		t.Errorf("another branch: %s", got)
	}
	p.edit(kind.Hub, ref("w1", "a"), `{"targetBranch":"env"}`, "spec", "sourceHydrator", "hydrateTo")
	p.waitSeconds(60)
	if got := p.hydratorCondition(); got == "" {
		t.Error("the branch of hydrateTo does not count")
	}
}
