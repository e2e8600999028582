package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// TestTenant_ReachesNoOtherCluster uses a real argocd-server. A user can do everything with Applications of one
// AppProject in the namespace of one agent, and can write Applications there with kubectl. The user must not reach
// objects of the hub, of another agent, or of a cluster that Argo CD reaches directly.
func TestTenant_ReachesNoOtherCluster(t *testing.T) {
	open := func() *lab.Lab {
		return lab.New(t, lab.Options{Spokes: []lab.Spoke{{Name: "w1", Role: lab.Managed}, {Name: "w2", Role: lab.Managed}}})
	}
	if os.Getenv(lab.DirVariable) != "" {
		open = func() *lab.Lab { return lab.Get(t) }
	}
	w := newEnv(t, setup{lab: open(), agents: []agentSetup{{name: "w1", cluster: "w1", mode: "managed"}, {name: "w2", cluster: "w2", mode: "managed"}}})
	t.Cleanup(w.close)
	for _, a := range w.agents {
		livePermissions(t, a.spoke.Cluster)
	}
	flags, changes := w.extensionOfPrincipal(t)
	w.principal.args = append(w.principal.args, flags...)
	w.start(t)
	w.serveArgoCD(t, changes...)
	tenant := newTenant(t, w)
	direct := registerDirectly(t, w)

	t.Run("its own Application works", func(t *testing.T) { tenant.reachesItsOwn(t) })
	for name, destination := range map[string]map[string]any{
		"the hub by name":                             {"name": "in-cluster"},
		"the hub by URL":                              {"server": "https://kubernetes.default.svc"},
		"the hub by URL and its agent by name":        {"name": "w1", "server": "https://kubernetes.default.svc"},
		"another agent by name":                       {"name": "w2"},
		"another agent by URL":                        {"server": at(w.hub.agentCluster(t, "w2"), "server")},
		"a cluster that is reached directly, by name": {"name": "direct"},
		"a cluster that is reached directly, by URL":  {"server": direct},
	} {
		t.Run(name, func(t *testing.T) { tenant.reachesNothing(t, destination) })
	}
	t.Run("an Application with an edited destination is not changed", func(t *testing.T) { tenant.editsAway(t) })
	t.Run("two teams do not see each other", func(t *testing.T) {
		tenant.doesNotSee(t, newNeighbor(t, w))
		tenant.extensionShowsItsOwn(t)
	})
}

// newNeighbor creates another team, with an AppProject that permits only w2, and an Application there.
func newNeighbor(t *testing.T, w *testEnv) *tenant {
	t.Helper()
	project := projectOf("w2")
	project["spec"].(map[string]any)["sourceNamespaces"] = []any{"w2"}
	w.hub.project(neighborProject).create(t, project)
	w.hub.configMap("argocd-cm").patch(t, `{"data":{"accounts.neighbor":"apiKey"}}`)
	policy, _, _ := unstructured.NestedString(w.hub.configMap("argocd-rbac-cm").get(t).Object, "data", "policy.csv")
	for name, of := range map[string][2]string{"tenant": {tenantProject, "w1"}, "neighbor": {neighborProject, "w2"}} {
		policy += "p, role:" + name + ", projects, get, " + of[0] + ", allow\np, role:" + name + ", clusters, get, https://*?agentName=" + of[1] + ", allow\n"
	}
	policy += "p, role:neighbor, applications, *, " + neighborProject + "/*, allow\np, role:neighbor, logs, get, " + neighborProject + "/*, allow\ng, neighbor, role:neighbor\n"
	w.hub.configMap("argocd-rbac-cm").patch(t, `{"data":{"policy.default":"","policy.csv":`+string(toJSON(t, policy))+`}}`)
	neighbor := &tenant{w: w, repo: w.RepoURL("rights"), token: tokenOf(t, w, "neighbor")}
	app := appSpec{repo: neighbor.repo, project: neighborProject, destination: "w2", namespace: rightsNamespace, automated: true}.object()
	w.hub.app("w2", "theirs").create(t, app)
	w.hub.app("w2", "theirs").becomes(t, synced, healthyApp)
	return neighbor
}

const neighborProject = "neighbors"

// doesNotSee compares what Argo CD shows two teams. Each sees its own and nothing of the other.
func (u *tenant) doesNotSee(t *testing.T, other *tenant) {
	t.Helper()
	u.w.hub.app("w1", "mine").create(t, u.application(map[string]any{"name": "w1"}))
	for _, c := range []struct {
		user                      *tenant
		own, ownAgent, ownProject string
		app, agent, project       string
	}{{u, "w1/mine", "w1", tenantProject, "w2/theirs", "w2", neighborProject}, {other, "w2/theirs", "w2", neighborProject, "w1/mine", "w1", tenantProject}} {
		for list, want := range map[string][2]string{"app": {c.own, c.app}, "cluster": {"agentName=" + c.ownAgent, "agentName=" + c.agent}, "proj": {c.ownProject, c.project}} {
			await(t, list+" list", func() error { // argocd-server reads the new policy after a moment
				out, err := c.user.argocd(t, list, "list")
				if err != nil || !strings.Contains(out, want[0]) || strings.Contains(out, want[1]) || strings.Contains(out, "kubernetes.default") {
					return fmt.Errorf("argocd %s list: %w: %s", list, err, out)
				}
				return nil
			})
		}
		for _, args := range [][]string{{"app", "get", c.app}, {"app", "logs", c.app}, {"app", "sync", c.app}, {"app", "delete", c.app, "--yes"},
			{"proj", "get", c.project}, {"cluster", "get", c.agent}, {"app", "manifests", c.app}} {
			if out, err := c.user.argocd(t, args...); err == nil || !strings.Contains(out, "permission denied") {
				t.Errorf("argocd %s: %v: %s", strings.Join(args, " "), err, out)
			}
		}
	}
	u.w.hub.app("w2", "theirs").is(t)
	u.w.hub.app("w1", "mine").is(t)
}

// tokenOf returns a token of an account of Argo CD.
func tokenOf(t *testing.T, w *testEnv, account string) (token string) {
	t.Helper()
	await(t, "a token of "+account, func() error {
		out, err := w.tryArgocd(t, "account", "generate-token", "--account", account)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		token = strings.TrimSpace(out)
		return nil
	})
	return token
}

// agentCluster is the content of an agent's cluster Secret.
func (s *clusterClient) agentCluster(t testing.TB, agent string) *unstructured.Unstructured {
	t.Helper()
	secret := s.secret("cluster-"+agent).becomes(t, func(u *unstructured.Unstructured) error {
		if at(u, "data.server") == "" {
			return fmt.Errorf("it has no server")
		}
		return nil
	})
	said := &unstructured.Unstructured{Object: map[string]any{}}
	for _, key := range []string{"name", "server"} {
		text, err := base64.StdEncoding.DecodeString(at(secret, "data."+key))
		if err != nil {
			t.Fatal(err)
		}
		said.Object[key] = string(text)
	}
	return said
}

// registerDirectly registers the cluster of w2 without an agent as cluster "direct" in Argo CD on the hub, and returns
// its URL.
func registerDirectly(t testing.TB, w *testEnv) string {
	t.Helper()
	config := w.Cluster("w2").Admin()
	read := func(data []byte, file string) []byte {
		if len(data) > 0 {
			return data
		}
		return readFile(t, file)
	}
	text := toJSON(t, map[string]any{"tlsClientConfig": map[string]any{
		"certData": read(config.CertData, config.CertFile), "keyData": read(config.KeyData, config.KeyFile), "caData": read(config.CAData, config.CAFile)}})
	w.hub.secret("cluster-direct").create(t, secretOf("cluster", map[string]string{"name": "direct", "server": config.Host, "config": string(text)}))
	return config.Host
}

// tenant is a user of the hub's Argo CD.
type tenant struct {
	w     *testEnv
	token string
	repo  string
}

const (
	tenantProject = "tenants"

	// The object that the tenant tries to change on other clusters. By default no cluster lets its hub deploy to the
	// namespace of Argo CD, so it is in another one.
	rightsNamespace = "tenant-rights"
	rightsName      = "rights"
)

func (s *clusterClient) rights() object { return s.object(configMaps, rightsNamespace, rightsName) }

// newTenant creates the account, its AppProject, which permits only w1, and a repository with a ConfigMap that the hub
// and the other cluster have too.
func newTenant(t *testing.T, w *testEnv) *tenant {
	t.Helper()
	project := projectOf("w1")
	project["spec"].(map[string]any)["sourceNamespaces"] = []any{"w1"}
	w.hub.project(tenantProject).create(t, project)
	w.hub.configMap("argocd-cm").patch(t, `{"data":{"accounts.tenant":"apiKey"}}`)
	policy := "p, role:tenant, applications, *, " + tenantProject + "/w1/*, allow\np, role:tenant, logs, get, " + tenantProject + "/w1/*, allow\n" +
		"p, role:tenant, exec, create, " + tenantProject + "/w1/*, allow\ng, tenant, role:tenant\n"
	w.hub.configMap("argocd-rbac-cm").patch(t, `{"data":{"policy.csv":`+string(toJSON(t, policy))+`}}`)
	for _, s := range []*clusterClient{w.hub, w.agents["w2"].spoke} {
		s.ensureNamespace(t, rightsNamespace)
		s.rights().create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"policy.default": ""}})
	}
	w.agents["w1"].spoke.ensureNamespace(t, rightsNamespace)

	store, err := w.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := store.Create(t.Context(), "rights", gitserver.RepoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"rights.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + rightsName + ", namespace: " + rightsNamespace + "}, data: {mine: \"1\"}}\n"}
	if _, err := repository.Commit(t.Context(), "rights", files); err != nil {
		t.Fatal(err)
	}
	return &tenant{w: w, repo: w.RepoURL("rights"), token: tokenOf(t, w, "tenant")}
}

// argocd runs the argocd CLI as the tenant with a timeout.
func (u *tenant) argocd(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := u.w.Command(ctx, "argocd", append(args, "--auth-token", u.token)...).CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("argocd %s hangs: %s", strings.Join(args, " "), out)
	}
	return string(out), err
}

// api sends a request to the Argo CD API as the tenant.
func (u *tenant) api(t testing.TB, method, path string, query url.Values, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+u.w.ArgoCD.Address+path+"?"+query.Encode(), bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	login := *u.w.Lab
	login.ArgoCD.Token = u.token
	client, err := login.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// rights returns the API parameters of the ConfigMap in the tenant's repository.
func rights(more ...string) url.Values {
	q := url.Values{"appNamespace": {"w1"}, "project": {tenantProject}, "namespace": {rightsNamespace}, "resourceName": {rightsName}, "group": {""}, "version": {"v1"}, "kind": {"ConfigMap"}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

func (u *tenant) application(destination map[string]any) map[string]any {
	app := appSpec{repo: u.repo, project: tenantProject, namespace: rightsNamespace, automated: true}.object()
	to := map[string]any{"namespace": rightsNamespace}
	maps.Copy(to, destination)
	app["spec"].(map[string]any)["destination"] = to
	return app
}

const escalate = `{"data":{"policy.default":"role:admin"}}`

// reachesItsOwn shows that the requests work for the tenant's own cluster.
func (u *tenant) reachesItsOwn(t *testing.T) {
	t.Helper()
	app := u.w.hub.app("w1", "own")
	app.create(t, u.application(map[string]any{"name": "w1"}))
	app.becomes(t, synced, healthyApp, noOperation, showsNo("AgentError"))
	if status, text := u.api(t, http.MethodGet, "/api/v1/applications/own/resource", rights(), ""); status != http.StatusOK || !strings.Contains(text, "mine") {
		t.Errorf("its own ConfigMap: %d %s", status, text)
	}
	out, err := u.argocd(t, "app", "patch-resource", "w1/own", "--kind", "ConfigMap", "--namespace", rightsNamespace, "--resource-name", rightsName,
		"--patch", `{"data":{"patched":"yes"}}`, "--patch-type", "application/merge-patch+json")
	if err != nil {
		t.Errorf("argocd app patch-resource: %v: %s", err, out)
	}
	u.w.agents["w1"].spoke.rights().becomes(t, field("data.patched", "yes"))
	if _, err := u.argocd(t, "app", "get", "argocd/anything"); err == nil {
		t.Error("the tenant may read Applications of others")
	}
}

// reachesNothing tests an Application for another cluster than that of its agent.
func (u *tenant) reachesNothing(t *testing.T, destination map[string]any) {
	t.Helper()
	hub, w1, w2 := u.w.hub, u.w.agents["w1"].spoke, u.w.agents["w2"].spoke
	before := map[*clusterClient]string{}
	for _, s := range []*clusterClient{hub, w1, w2} {
		before[s] = dataOf(t, s.rights())
	}
	app := hub.app("w1", "astray")
	app.create(t, u.application(destination))
	app.becomes(t, shows("AgentError", `which is not the cluster of agent "w1"`), shows("AgentError", `Set spec.destination.name to "w1"`))

	resource := "/api/v1/applications/astray"
	for what, ask := range map[string]func() (int, string){
		"patch": func() (int, string) {
			return u.api(t, http.MethodPost, resource+"/resource", rights("patchType", "application/merge-patch+json"), string(toJSON(t, escalate)))
		},
		"read":              func() (int, string) { return u.api(t, http.MethodGet, resource+"/resource", rights(), "") },
		"delete":            func() (int, string) { return u.api(t, http.MethodDelete, resource+"/resource", rights(), "") },
		"tree":              func() (int, string) { return u.api(t, http.MethodGet, resource+"/resource-tree", rights(), "") },
		"managed resources": func() (int, string) { return u.api(t, http.MethodGet, resource+"/managed-resources", rights(), "") },
		"actions":           func() (int, string) { return u.api(t, http.MethodGet, resource+"/resource/actions", rights(), "") },
		"events": func() (int, string) {
			return u.api(t, http.MethodGet, resource+"/events", rights("resourceNamespace", rightsNamespace, "resourceUID", "x"), "")
		},
		"pod logs": func() (int, string) {
			return u.api(t, http.MethodGet, resource+"/pods/any/logs", rights("container", "x"), "")
		},
	} {
		if status, text := ask(); !strings.Contains(text, "is frozen") && (what != "managed resources" || !isNothing(text)) {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	name := []string{"--kind", "ConfigMap", "--resource-name", rightsName}
	for i, args := range [][]string{
		append([]string{"app", "patch-resource", "w1/astray", "--namespace", rightsNamespace, "--patch", escalate, "--patch-type", "application/merge-patch+json"}, name...),
		append([]string{"app", "delete-resource", "w1/astray", "--namespace", rightsNamespace}, name...),
		{"app", "manifests", "w1/astray", "--source", "live"},
		{"app", "diff", "w1/astray"},
		{"app", "diff", "w1/astray", "--server-side-diff"},
		append([]string{"app", "get-resource", "w1/astray"}, name...),
		{"app", "resources", "w1/astray"},
		{"app", "logs", "w1/astray"},
	} {
		out, err := u.argocd(t, args...)
		if managed := i < 5; managed && isNothing(out) {
			continue
		}
		if err == nil || !strings.Contains(out, "is frozen") {
			t.Errorf("argocd %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	for s, was := range before {
		if is := dataOf(t, s.rights()); is != was {
			t.Errorf("%s of %s was %s and is %s", rightsName, s.Name, was, is)
		}
	}
	for _, s := range []*clusterClient{w1, w2} {
		s.app(lab.ArgoCDNamespace, "astray").isAbsent(t)
	}
	app.is(t, field("status.sync.status", ""), field("status.operationState.phase", ""))
}

// isNothing reports whether a response that needs the managed resources has none. Argo CD v3.3 sends an empty list instead
// of the error.
func isNothing(response string) bool {
	response = strings.TrimSpace(response)
	return response == "" || response == "{}" || strings.Contains(response, "no matching resource found") || strings.Contains(response, "permission denied: projects, get")
}

// dataOf returns the data of a ConfigMap.
func dataOf(t testing.TB, o object) string {
	t.Helper()
	u := o.get(t)
	if u == nil {
		return "nothing"
	}
	return string(toJSON(t, u.Object["data"]))
}

// editsAway tests an Application that was placed, as after an upgrade from a release that did not check destinations.
func (u *tenant) editsAway(t *testing.T) {
	t.Helper()
	hub, spoke := u.w.hub, u.w.agents["w1"].spoke
	app, copied, workload := hub.app("w1", "edited"), spoke.app(lab.ArgoCDNamespace, "edited"), spoke.rights()
	object := u.application(map[string]any{"name": "w1"})
	object["metadata"].(map[string]any)["finalizers"] = []any{cascade}
	app.create(t, object)
	app.becomes(t, synced, healthyApp, noOperation)
	workload.is(t, field("data.mine", "1"))
	before := copied.get(t)

	app.edit(t, func(o *unstructured.Unstructured) {
		set(o, "spec.destination.name", "in-cluster")
		set(o, "spec.source.path", "elsewhere")
	})
	app.becomes(t, shows("AgentError", "is \"in-cluster\", which is not the cluster of agent"))
	if out, err := u.argocd(t, "app", "patch-resource", "w1/edited", "--kind", "ConfigMap", "--namespace", rightsNamespace, "--resource-name", rightsName,
		"--patch", escalate, "--patch-type", "application/merge-patch+json"); err == nil || !strings.Contains(out, "is frozen") && !isNothing(out) {
		t.Errorf("argocd app patch-resource: %v: %s", err, out)
	}
	if data := dataOf(t, hub.rights()); strings.Contains(data, "role:admin") {
		t.Errorf("%s of the hub is now %s", rightsName, data)
	}
	u.w.principal.restart(t) // it has not observed the placement
	u.w.agents["w1"].restart(t)
	u.w.connected(t)
	app.is(t, shows("AgentError", "is not the cluster of agent"))
	after := copied.is(t)
	for _, path := range []string{"spec", "metadata.annotations", "metadata.labels", "metadata.finalizers", "metadata.uid"} {
		if was, is := at(before, path), at(after, path); was != is {
			t.Errorf("%s of the spoke's Application was %s and is %s", path, was, is)
		}
	}
	workload.is(t, field("data.mine", "1"))

	app.edit(t, func(o *unstructured.Unstructured) {
		set(o, "spec.destination.name", "w1")
		set(o, "spec.source.path", ".")
	})
	app.becomes(t, showsNo("AgentError"), synced, healthyApp)
	if status, text := u.api(t, http.MethodGet, "/api/v1/applications/edited/resource", rights(), ""); status != http.StatusOK {
		t.Errorf("after the correction: %d %s", status, text)
	}
	app.delete(t)
	app.goes(t)
	workload.goes(t)
}
